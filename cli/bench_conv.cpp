// canopy bench --requests, measures conv and conv_commit: the tree convolution (E9) of a layer, or the commit of the
// windows of several layers in one launch, with the plan at hand as in a step of a model, beside a device copy of as
// many elements. Errors against E9 in fp64 come before, from calls that are not timed; a window is copied, so a commit
// is right bit for bit or wrong.
#include <fmt/core.h>

#include <algorithm>

#include "bench_device.hpp"
#include "bench_extra.hpp"
#include "host/conv_copies.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;
using host::ConvCopies, host::ConvSpec, host::DeviceMemory;

constexpr int kMostConvCopies = 640;  // 64 MiB of L2 in copies of the smallest shape's 0.4 MiB go round twice

Error named(const char* implementation, const Error& error) {
  return {error.status, fmt::format("{}: {}", implementation, error.message)};
}

std::vector<int> sequences(const ConvSpec& spec, const Effort& effort) {
  return sequences_to_check(std::vector<int>(static_cast<std::size_t>(spec.batch), 1), effort.checked);
}

// o after one call, in f32 in memory of its own or as it is timed.
Result<Check> check_output(const ConvCopies& copies, const ConvVerifyImplementation& implementation,
                           const std::vector<int>& checked, canopy_dtype dtype, DeviceMemory* apart) {
  ConvVerifyParams params = copies.verify(0);
  params.o.dtype = dtype;
  if (apart) {
    if (Error error = apart->fill(0xff); !error.ok()) return error;
    params.o.data = apart->data();
  }
  if (Error error = check(params); !error.ok()) return error;
  if (Error error = implementation.run(params, nullptr, nullptr); !error.ok()) return error;
  if (Error error = host::device_synchronize(); !error.ok()) return error;
  host::DeviationSum sum;
  for (const int b : checked) {
    const auto values = copies.output(b, dtype, apart);
    if (!values) return values.error();
    sum.add(copies.expected_output(b).data(), values->data(), static_cast<std::int64_t>(values->size()));
  }
  return verdict(sum, dtype, implementation.relative_tolerance, implementation.absolute_tolerance);
}

// The windows of the first and the last layer after one call.
Result<Check> check_windows(const ConvCopies& copies, const ConvCommitImplementation& implementation,
                            const std::vector<int>& checked, int layers) {
  const ConvCommitParams params = copies.commit(0);
  if (Error error = check(params); !error.ok()) return error;
  if (Error error = implementation.run(params, nullptr, nullptr); !error.ok()) return error;
  if (Error error = host::device_synchronize(); !error.ok()) return error;
  host::DeviationSum sum;
  for (const int layer : layers > 1 ? std::vector{0, layers - 1} : std::vector{0})
    for (const int b : checked) {
      const auto values = copies.window(layer, b);
      if (!values) return values.error();
      sum.add(copies.expected_window(layer, b).data(), values->data(), static_cast<std::int64_t>(values->size()));
    }
  return verdict(sum, CANOPY_F32, implementation.relative_tolerance, implementation.absolute_tolerance);
}

Json record(const ConvSpec& spec, const std::string& family, int depth, int checked, double bytes,
            const BenchCell& cell) {
  Json json{{"type", "conv"}, {"schema", 1}, {"contender", cell.contender}, {"device", "cuda"}};
  json.update(Json{{"B", spec.batch},
                   {"T", spec.family.nodes},
                   {"depth", depth},
                   {"family", family},
                   {"seed", spec.family.seed},
                   {"channels", spec.channels},
                   {"width", spec.width},
                   {"layers", spec.layers},
                   {"input", name_of(spec.input)},
                   {"silu", spec.silu}});
  add_times(json, cell);
  json["bytes"] = bytes;
  if (cell.computes) add_errors(json, cell);
  if (cell.computes && checked < spec.batch) json["checked_sequences"] = checked;
  return json;
}

}  // namespace

Result<Json> conv_records(const ConvSpec& spec, const std::string& family, const Effort& effort, bool commits) {
  // What check() would say of the params, before memory is asked for.
  const auto outside = [](const char* name, int value, int least, int most) {
    return value < least || value > most
               ? Error::invalid(fmt::format("{}: expected {} to {}, got {}", name, least, most, value))
               : Error{};
  };
  for (const Error& error : {outside("B", spec.batch, 1, 65535), outside("channels", spec.channels, 1, 1 << 20),
                             outside("width", spec.width, 2, 4), outside("layers", spec.layers, 1, 1000)})
    if (!error.ok()) return error;
  if (!commits && spec.layers > 1)
    return Error::invalid(
        fmt::format("layers: expected 1 of measure conv, got {}; measure conv_commit takes several", spec.layers));

  const double moved = commits ? ConvCopies::commit_bytes(spec) : ConvCopies::verify_bytes(spec);
  BenchShape shape;  // the times alone
  const double twice = 2.0 * static_cast<double>(host::device_info().l2_bytes);
  shape.copies =
      effort.cold ? host::copies_for(static_cast<int>(std::clamp(twice / moved + 1, 2.0, double{kMostConvCopies}))) : 1;
  auto made = ConvCopies::make(spec, shape.copies);
  if (!made) return made.error();
  const ConvCopies& copies = *made;
  const std::vector<int> checked = sequences(spec, effort);

  std::vector<host::TimedLaunch> launches;
  std::vector<BenchCell> cells;
  std::vector<double> bytes;
  const auto add = [&](BenchCell cell, double of_one, std::function<Error(int, void*)> launch) {
    launches.push_back({cell.contender, std::move(launch)});
    cells.push_back(std::move(cell)), bytes.push_back(of_one);
  };
  if (commits) {
    for (const auto& implementation : conv_commit_implementations()) {
      if (implementation.device != CANOPY_CUDA) continue;
      auto windows = check_windows(copies, implementation, checked, spec.layers);
      if (!windows) return named(implementation.name, windows.error());
      BenchCell cell;
      cell.contender = implementation.name, cell.check = *windows;
      cell.error_of = fmt::format("state in {}", name_of(spec.input));
      add(cell, moved, [&](int i, void* stream) { return implementation.run(copies.commit(i), nullptr, stream); });
    }
  } else {
    DeviceMemory exact(static_cast<std::size_t>(spec.batch) * spec.family.nodes * spec.channels * sizeof(float));
    for (const auto& implementation : conv_verify_implementations()) {
      if (implementation.device != CANOPY_CUDA) continue;
      const auto output = check_output(copies, implementation, checked, CANOPY_F32, &exact);
      if (!output) return named(implementation.name, output.error());
      BenchCell cell;
      cell.contender = implementation.name, cell.check = *output;
      if (spec.input != CANOPY_F32) {
        const auto timed = check_output(copies, implementation, checked, spec.input, nullptr);
        if (!timed) return named(implementation.name, timed.error());
        cell.timed = *timed, cell.check.passed &= timed->passed;
      }
      add(cell, moved, [&](int i, void* stream) { return implementation.run(copies.verify(i), nullptr, stream); });
    }
  }
  // Of as many elements as there are outputs, read once and written once.
  const double written = commits ? moved / 2
                                 : double(spec.batch) * spec.family.nodes * spec.channels * host::size_of(spec.input);
  BenchCell copy;
  copy.contender = "copy", copy.computes = false;
  add(copy, 2 * written,
      [&](int i, void* stream) { return copies.copy_inputs(i, static_cast<std::size_t>(written), stream); });
  if (Error error = time_both(effort, launches, cells, shape); !error.ok()) return error;
  Json all = Json::array();
  for (std::size_t i = 0; i < shape.cells.size(); ++i)  // all warm, then all cold
    all.push_back(record(spec, family, copies.depth(), static_cast<int>(checked.size()), bytes[i % bytes.size()],
                         shape.cells[i]));
  return all;
}

}  // namespace canopy::cli
