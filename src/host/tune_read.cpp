// Timings out of a result file.
#include <nlohmann/json.hpp>

#include "dispatch/file.hpp"
#include "host/tune.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

using Json = nlohmann::json;

int precision_number(const std::string& name) {
  for (int i = 0; i <= CANOPY_PRECISION_FAST; ++i)
    if (name == dispatch::kPrecisions[i]) return i;
  return -1;
}

// The registry's name in a contender's: "cuda_fused" of "cuda_fused precise".
std::string implementation_of(const std::string& contender) { return contender.substr(0, contender.find(' ')); }

std::string variant_of(const Json& cell) {
  std::string out = text(cell.at("family").get<std::string>(), " depth ", cell.at("depth").get<int>());
  for (const char* key : {"K", "V"}) out += text(" ", key, "=", cell.at(key).get<int>());
  out += text(" HV/H=", cell.at("HV").get<int>() / cell.at("H").get<int>(), " state ",
              cell.at("state").get<std::string>(), " ", cell.at("cache").get<std::string>());
  if (cell.value("stash", false)) out += ", u stored";
  if (cell.contains("threads")) out += text(" threads ", cell.at("threads").get<int>());
  return out;
}

}  // namespace

Error read_timings(std::string_view source, std::string_view file, int device, Timings& into) {
  const std::string wanted = device == CANOPY_CPU ? "cpu" : "cuda";
  std::string machine;
  int number = 0;
  while (!source.empty()) {
    const std::size_t end = source.find('\n');
    const std::string_view line = source.substr(0, end);
    source.remove_prefix(end == std::string_view::npos ? source.size() : end + 1);
    ++number;
    if (line.empty()) continue;
    try {
      const Json record = Json::parse(line);
      const std::string type = record.value("type", "");
      if (type == "environment") {
        const bool gpu = record.contains("gpu") && record["gpu"].is_object();
        machine = device == CANOPY_CPU ? record.value("cpu", "") : gpu ? record["gpu"].value("name", "") : "";
        if (device == CANOPY_CUDA && gpu) into.capability = record["gpu"].value("compute_capability", 0);
      }
      if (type != "cell" || record.value("device", "") != wanted || !record.contains("relative")) continue;
      const std::string implementation = implementation_of(record.at("contender"));
      if (implementation.find("_commit_") != std::string::npos) continue;  // another table's, and not made from timings
      if (implementation.rfind(wanted + "_", 0) != 0 || !record.value("passed", true) ||
          record.value("named_only", false))
        continue;
      if (machine.empty()) return Error::invalid(text(file, ":", number, ": a cell before any environment record"));
      if (!into.machine.empty() && into.machine != machine)
        return Error::invalid(text(file, ":", number, ": measured on ", machine, ", but the cells before it on ",
                                   into.machine, "; expected one machine a table"));
      into.machine = machine, into.device = device;
      Timing timing;
      timing.implementation = implementation;
      timing.precision = precision_number(record.at("precision"));
      if (timing.precision < 0 || device == CANOPY_CPU) timing.precision = CANOPY_PRECISION_DEFAULT;
      for (const Json& other : record.value("same_as", Json::array()))
        timing.same_as.push_back(precision_number(other));
      timing.heads = record.at("B").get<int>() * record.at("HV").get<int>();
      timing.nodes = record.at("T");
      timing.variant = variant_of(record);
      timing.median = record.at("median_us");
      timing.stash = record.value("stash", false);
      timing.depth = record.at("depth");
      if (timing.depth < 0 || timing.depth >= CANOPY_MAX_NODES)
        return Error::invalid(
            text(file, ":", number, ": depth = ", timing.depth, ": expected 0 to ", CANOPY_MAX_NODES - 1));
      into.cells.push_back(std::move(timing));
    } catch (const Json::exception& error) {
      return Error::invalid(text(file, ":", number, ": ", error.what(), "; bench/schema.json says what a line holds"));
    }
  }
  return {};
}

}  // namespace canopy::host
