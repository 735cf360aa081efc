// Problems on disk: safetensors out, whole files in and out.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "host/host_problem.hpp"
#include "host/safetensors.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

std::string reason() { return std::generic_category().message(errno); }

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string format_safetensors(const std::map<std::string, HostTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  // Wide elements first: every tensor is then aligned to its elements, as the reference writer does.
  std::vector<const std::pair<const std::string, HostTensor>*> order;
  for (const auto& item : tensors) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* x, const auto* y) { return size_of(x->second.dtype) > size_of(y->second.dtype); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const auto* item : order) {
    const HostTensor& tensor = item->second;
    const auto type = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const DtypeName& d) { return d.dtype == tensor.dtype; });
    const std::size_t end = offset + tensor.bytes.size();
    header[item->first] = {{"dtype", type->name}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  const std::uint64_t length = text.size();
  std::string out(8, '\0');
  out.reserve(8 + text.size() + offset);
  std::memcpy(out.data(), &length, 8);
  out += text;
  for (const auto* item : order) {
    out.append(reinterpret_cast<const char*>(item->second.bytes.data()), item->second.bytes.size());
  }
  return out;
}

Result<HostProblem> read_problem(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    return Error::invalid(text(path, ": is a directory, expected a safetensors file"));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error::invalid(text(path, ": cannot be read: ", reason()));
  std::string bytes;
  if (const auto size = std::filesystem::file_size(path, code); !code) bytes.reserve(size);
  char chunk[1 << 16];
  while (file.read(chunk, sizeof chunk) || file.gcount() > 0)
    bytes.append(chunk, static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return Error::invalid(text(path, ": reading stopped after ", bytes.size(), " bytes: ", reason()));
  return parse_safetensors(bytes, path);
}

Error write_file(const std::string& path, std::string_view bytes) {
  const auto failed = [&](const std::string& what) { return Error::invalid(text(path, ": ", what, ": ", reason())); };
  std::error_code code;
  std::filesystem::path target(path);
  if (std::filesystem::is_symlink(target, code)) target = std::filesystem::weakly_canonical(target, code);
  if (std::filesystem::exists(target, code) && !std::filesystem::is_regular_file(target, code)) {
    // A terminal, a pipe, /dev/null: renaming over it would replace it.
    const int file = ::open(target.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return failed("cannot be opened for writing");
    const bool written = write_all(file, bytes);
    const Error error = written ? Error{} : failed("cannot be written");
    ::close(file);
    return error;
  }
  std::string temporary = target.string() + ".XXXXXX";
  const int file = ::mkstemp(temporary.data());
  if (file < 0) return failed("cannot create a file beside it");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const bool written = write_all(file, bytes) && ::fchmod(file, 0666 & ~mask) == 0;
  Error error = written ? Error{} : failed("cannot be written");
  if (::close(file) != 0 && error.ok()) error = failed("cannot be written");
  if (error.ok() && ::rename(temporary.c_str(), target.c_str()) != 0) error = failed("cannot be put in place");
  if (!error.ok()) ::unlink(temporary.c_str());
  return error;
}

Error write_problem(const std::string& path, const HostProblem& problem) {
  std::map<std::string, std::string> metadata{{"state_layout", problem.layout == CANOPY_STATE_VK ? "vk" : "kv"},
                                              {"l2norm", problem.l2norm ? "true" : "false"},
                                              {"beta_doubled", problem.beta_doubled ? "true" : "false"}};
  if (problem.scale != 0) {  // the shortest text that reads back as the same float
    char digits[32];
    metadata["scale"] = std::string(digits, std::to_chars(digits, digits + sizeof digits, problem.scale).ptr);
  }
  return write_file(path, format_safetensors(problem.tensors, metadata));
}

}  // namespace canopy::host
