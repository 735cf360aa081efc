// safetensors in: 8-byte little-endian header length, JSON header, data that the tensors tile without holes. The file
// is hostile until every number in the header has been held against the bytes that are there.
#include "host/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "host/host_problem.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor data is copied as it stands in the file");

using Json = nlohmann::json;

constexpr const char* kKnown[] = {"q",     "k",       "v",     "g",       "beta",  "a",    "b",
                                  "A_log", "dt_bias", "state", "parents", "count", "slots"};
constexpr std::uint64_t kMaxHeader = 100u << 20;  // the limit of the reference reader
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 60;

struct Entry {
  std::string name;
  canopy_dtype dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;  // in the data
};

Error bad(std::string_view origin, const auto&... pieces) { return Error::invalid(text(origin, ": ", pieces...)); }

// The header as JSON; a key that stands twice in one object is an error, not the last one silently.
Result<Json> parse_header(std::string_view header, std::string_view origin) {
  std::vector<std::set<std::string>> open;
  std::string duplicate;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second &&
        duplicate.empty()) {
      duplicate = value.get<std::string>();
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(header, watch);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    return bad(origin, "header, from byte 8: expected JSON, found ", what.substr(what.find(' ') + 1));
  }
  if (!duplicate.empty()) return bad(origin, "header: key \"", duplicate, "\" stands twice; expected each name once");
  if (!json.is_object()) return bad(origin, "header: expected a JSON object, found ", json.type_name());
  return json;
}

Result<Entry> parse_entry(const std::string& name, const Json& json, std::uint64_t data_size, std::string_view origin) {
  const auto fail = [&](const auto&... pieces) { return bad(origin, "tensor \"", name, "\": ", pieces...); };
  if (!json.is_object()) return fail("expected an object with dtype, shape and data_offsets, found ", json.type_name());
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!json.contains(field)) return fail("expected dtype, shape and data_offsets, ", field, " is missing");
  }
  Entry entry{name, CANOPY_F32, {}, 0, 0};

  const Json& dtype = json["dtype"];
  if (!dtype.is_string()) return fail("dtype: expected a string, found ", dtype.type_name());
  const auto type =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& d) { return dtype == d.name; });
  if (type == std::end(kDtypes)) {
    return fail("dtype ", dtype.get<std::string>(), ": expected F32, BF16, F16, I32 or I64; convert it before saving");
  }
  entry.dtype = type->dtype;

  const Json& shape = json["shape"];
  if (!shape.is_array()) return fail("shape: expected an array, found ", shape.type_name());
  if (shape.size() > 8) return fail("shape: expected at most 8 axes, found ", shape.size());
  std::uint64_t elements = 1;
  for (const Json& extent : shape) {
    if (!extent.is_number_unsigned()) return fail("shape ", shape.dump(), ": expected extents of 0 or more");
    const std::uint64_t value = extent.get<std::uint64_t>();
    if (value > kMaxElements || __builtin_mul_overflow(elements, std::max<std::uint64_t>(value, 1), &elements) ||
        elements > kMaxElements) {
      return fail("shape ", shape.dump(), ": expected at most 2^60 elements");
    }
    entry.shape.push_back(static_cast<std::int64_t>(value));
  }
  if (std::count(entry.shape.begin(), entry.shape.end(), 0) > 0) elements = 0;

  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return fail("data_offsets ", offsets.dump(), ": expected [begin, end] of 0 or more bytes");
  }
  entry.begin = offsets[0].get<std::uint64_t>(), entry.end = offsets[1].get<std::uint64_t>();
  if (entry.begin > entry.end || entry.end > data_size) {
    return fail("data_offsets ", offsets.dump(), ": expected begin <= end <= ", data_size,
                ", the bytes of data in the file");
  }
  const std::uint64_t expected = elements * size_of(entry.dtype);
  if (entry.end - entry.begin != expected) {
    return fail("data_offsets ", offsets.dump(), " hold ", entry.end - entry.begin, " bytes: expected ", expected,
                " for ", type->name, " ", shape.dump());
  }
  return entry;
}

// The tensors cover the data exactly, in some order.
Error check_tiling(std::vector<Entry>& entries, std::uint64_t data_size, std::string_view origin) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& x, const Entry& y) { return x.begin != y.begin ? x.begin < y.begin : x.end < y.end; });
  std::uint64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered) {
      return bad(origin, "tensor \"", entry.name, "\" begins at byte ", entry.begin, " of the data: expected ", covered,
                 entry.begin < covered ? ", it overlaps the tensor before it" : ", there is a hole before it");
    }
    covered = entry.end;
  }
  if (covered != data_size) {
    return bad(origin, "the tensors end at byte ", covered, " of the data: expected ", data_size,
               ", the end of the file");
  }
  return {};
}

HostTensor copy_out(const Entry& entry, std::string_view data) {
  HostTensor tensor = HostTensor::make(entry.dtype, entry.shape);
  if (!tensor.bytes.empty()) std::memcpy(tensor.bytes.data(), data.data() + entry.begin, tensor.bytes.size());
  return tensor;
}

// parents, count and slots are int32 from here on.
Result<HostTensor> narrowed(const std::string& name, HostTensor tensor, std::string_view origin) {
  if (tensor.dtype == CANOPY_I32) return tensor;
  if (tensor.dtype != CANOPY_I64) {
    return bad(origin, "tensor \"", name, "\": dtype ", dtype_name(tensor.dtype), ": expected I32 or I64");
  }
  HostTensor out = HostTensor::make(CANOPY_I32, tensor.shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    std::int64_t value;
    std::memcpy(&value, tensor.bytes.data() + 8 * i, sizeof value);
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max()) {
      return bad(origin, "tensor \"", name, "\": element ", i, " = ", value, ": expected a value that fits int32");
    }
    out.i32()[i] = static_cast<std::int32_t>(value);
  }
  return out;
}

Error parse_metadata(const Json& json, std::string_view origin, HostProblem& problem) {
  if (!json.is_object()) return bad(origin, "__metadata__: expected an object of strings, found ", json.type_name());
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const Json& value = item.value();
    if (!value.is_string())
      return bad(origin, "__metadata__ \"", key, "\": expected a string, found ", value.type_name());
    const std::string& word = value.get_ref<const std::string&>();
    const auto fail = [&](const char* expected) {
      return bad(origin, "__metadata__ ", key, " = \"", word, "\": expected ", expected);
    };
    if (key == "state_layout") {
      if (word != "vk" && word != "kv") return fail("vk ([slots,HV,V,K]) or kv ([slots,HV,K,V])");
      problem.layout = word == "vk" ? CANOPY_STATE_VK : CANOPY_STATE_KV;
    } else if (key == "l2norm" || key == "beta_doubled") {
      if (word != "true" && word != "false") return fail("true or false");
      (key == "l2norm" ? problem.l2norm : problem.beta_doubled) = word == "true";
    } else if (key == "scale") {
      const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), problem.scale);
      if (code != std::errc{} || end != word.data() + word.size() || !std::isfinite(problem.scale)) {
        return fail("a finite number, or 0 for K^-0.5");
      }
    }  // other keys are other programs' ("format": "pt")
  }
  return {};
}

}  // namespace

Result<HostProblem> parse_safetensors(std::string_view bytes, std::string_view origin) {
  if (bytes.size() < 8) {
    return bad(origin, bytes.size(), " bytes: expected a safetensors file, at least the 8 bytes of the header length");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  if (length > kMaxHeader || length > bytes.size() - 8) {
    return bad(origin, "byte 0: header length ", length, ": expected at most ",
               std::min<std::uint64_t>(bytes.size() - 8, kMaxHeader), " (is this a safetensors file, and all of it?)");
  }
  Result<Json> header = parse_header(bytes.substr(8, length), origin);
  if (!header) return header.error();
  const std::string_view data = bytes.substr(8 + length);

  HostProblem problem;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") {
      if (Error error = parse_metadata(value, origin, problem); !error.ok()) return error;
      continue;
    }
    if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown)) {
      std::string names;
      for (const char* known : kKnown) names += (names.empty() ? "" : " ") + std::string(known);
      return bad(origin, "tensor \"", name, "\" is not part of a problem: expected only ", names,
                 "; remove or rename it");
    }
    Result<Entry> entry = parse_entry(name, value, data.size(), origin);
    if (!entry) return entry.error();
    entries.push_back(*std::move(entry));
  }
  if (Error error = check_tiling(entries, data.size(), origin); !error.ok()) return error;
  for (const Entry& entry : entries) {
    HostTensor tensor = copy_out(entry, data);
    if (entry.name == "parents" || entry.name == "count" || entry.name == "slots") {
      Result<HostTensor> narrow = narrowed(entry.name, std::move(tensor), origin);
      if (!narrow) return narrow.error();
      tensor = *std::move(narrow);
    } else if (tensor.dtype == CANOPY_I32 || tensor.dtype == CANOPY_I64) {
      return bad(origin, "tensor \"", entry.name, "\": dtype ", dtype_name(tensor.dtype),
                 ": expected F32, BF16 or F16");
    }
    problem.tensors[entry.name] = std::move(tensor);
  }
  if (Result<Problem> view = problem.problem(); !view) return bad(origin, view.error().message);
  return problem;
}

}  // namespace canopy::host
