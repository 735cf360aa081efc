// safetensors: what is written reads back bit for bit, and no malformed file gets through.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "host/host_problem.hpp"

namespace canopy::host {
namespace {

HostProblem small_problem(bool raw = false, canopy_dtype input = CANOPY_BF16) {
  ProblemSpec spec;
  spec.batch = 3, spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 8, spec.dim_v = 8;
  spec.family.name = "chain", spec.family.nodes = 3;
  spec.raw_gates = raw, spec.input = input, spec.slots = spec.ragged = true;
  auto made = make_problem(spec);
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string out(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  return out + header + std::string(data_bytes, '\0');
}

// The smallest whole problem, B = T = H = HV = 1, K = V = 2, with one header entry replaced or added.
std::string minimal(const std::string& replaced = {}, const std::string& entry = {}, std::size_t extra = 0,
                    const std::string& before = {}) {
  struct {
    const char *name, *shape;
    int bytes;
  } const tensors[] = {{"q", "[1,1,1,2]", 8},  {"k", "[1,1,1,2]", 8},      {"v", "[1,1,1,2]", 8},  {"g", "[1,1,1]", 4},
                       {"beta", "[1,1,1]", 4}, {"state", "[1,1,2,2]", 16}, {"parents", "[1,1]", 4}};
  std::string header = "{" + before;
  int offset = 0;
  for (const auto& t : tensors) {
    if (offset) header += ",";
    const std::string own = "{\"dtype\":\"" + std::string(t.name == std::string("parents") ? "I32" : "F32") +
                            "\",\"shape\":" + t.shape + ",\"data_offsets\":[" + std::to_string(offset) + "," +
                            std::to_string(offset + t.bytes) + "]}";
    header += "\"" + std::string(t.name) + "\":" + (replaced == t.name ? entry : own);
    offset += t.bytes;
  }
  if (replaced == "+") header += "," + entry;
  return file_of(header + "}", static_cast<std::size_t>(offset) + extra);
}

TEST(Safetensors, RoundTripKeepsEveryBit) {
  for (const bool raw : {false, true}) {
    for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
      HostProblem problem = small_problem(raw, input);
      problem.l2norm = true, problem.layout = CANOPY_STATE_KV, problem.scale = 0.1f, problem.beta_doubled = raw;
      const std::string path = testing::TempDir() + "canopy_round_trip.safetensors";
      ASSERT_TRUE(write_problem(path, problem).ok());
      auto back = read_problem(path);
      std::filesystem::remove(path);
      ASSERT_TRUE(back) << back.error().message;
      EXPECT_TRUE(back->l2norm);
      EXPECT_EQ(back->beta_doubled, raw);
      EXPECT_EQ(back->layout, CANOPY_STATE_KV);
      EXPECT_EQ(back->scale, 0.1f);
      ASSERT_EQ(back->tensors.size(), problem.tensors.size());
      for (const auto& [name, tensor] : problem.tensors) {
        EXPECT_EQ(back->tensors.at(name).dtype, tensor.dtype) << name;
        EXPECT_EQ(back->tensors.at(name).shape, tensor.shape) << name;
        EXPECT_EQ(back->tensors.at(name).bytes, tensor.bytes) << name;
      }
    }
  }
}

TEST(Safetensors, NaNIsCarried) {
  HostProblem problem = small_problem();
  problem.tensors["v"].set(0, std::nanf(""));
  const auto back = parse_safetensors(format_safetensors(problem.tensors, {}), "nan");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(std::isnan(back->tensors.at("v").get(0)));
}

TEST(Safetensors, WideIntegersAreNarrowed) {
  HostProblem problem = small_problem();
  HostTensor wide = HostTensor::make(CANOPY_I64, {3});
  const std::int64_t slots[] = {2, -1, 0};
  std::memcpy(wide.bytes.data(), slots, sizeof slots);
  problem.tensors["slots"] = wide;
  const auto back = parse_safetensors(format_safetensors(problem.tensors, {}), "wide");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->tensors.at("slots").dtype, CANOPY_I32);
  EXPECT_EQ(back->tensors.at("slots").i32()[1], -1);
  const std::int64_t far = std::int64_t{1} << 33;
  std::memcpy(problem.tensors["slots"].bytes.data() + 8, &far, 8);
  const auto refused = parse_safetensors(format_safetensors(problem.tensors, {}), "wide");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "wide: tensor \"slots\": element 1 = 8589934592: expected a value that fits int32");
}

TEST(Safetensors, MinimalFileIsTaken) {
  const auto problem = parse_safetensors(minimal(), "f");
  ASSERT_TRUE(problem) << problem.error().message;
  EXPECT_FALSE(problem->l2norm);
  EXPECT_EQ(problem->layout, CANOPY_STATE_VK);
  // Other programs' metadata and a header padded with spaces are legal.
  EXPECT_TRUE(parse_safetensors(minimal("", "", 0, "\"__metadata__\":{\"format\":\"pt\"},   "), "f"));
}

struct Malformed {
  const char* name;
  std::string bytes;
  const char* message;  // the whole of it, or its beginning where it ends in "..."
};

std::vector<Malformed> malformed() {
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string("{\"dtype\":\"") + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const auto meta = [](const char* body) { return minimal("", "", 0, std::string("\"__metadata__\":") + body + ","); };
  return {
      {"empty", "", "f: 0 bytes: expected a safetensors file, at least the 8 bytes of the header length"},
      {"header_past_file", file_of("{}", 0).substr(0, 9), "f: byte 0: header length 2: expected at most 1..."},
      {"header_huge", std::string(8, '\xff') + "{}",
       "f: byte 0: header length 18446744073709551615: expected at most 2..."},
      {"not_json", file_of("{\"q\":", 0), "f: header, from byte 8: expected JSON, found parse error at line 1, ..."},
      {"not_utf8", file_of("{\"\xff\":1}", 0), "f: header, from byte 8: expected JSON, found ..."},
      {"not_an_object", file_of("[1,2]", 0), "f: header: expected a JSON object, found array"},
      {"no_tensors", file_of("{}", 0), "f: tensor q is missing"},
      {"duplicate", minimal("+", "\"q\":" + entry("F32", "[1,1,1,2]", "[0,8]")),
       "f: header: key \"q\" stands twice; expected each name once"},
      {"duplicate_inside",
       minimal("q", "{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1,1,1,2],\"data_offsets\":[0,8]}"),
       "f: header: key \"dtype\" stands twice; expected each name once"},
      {"unknown_tensor", minimal("+", "\"Q\":" + entry("F32", "[1]", "[52,56]"), 4),
       "f: tensor \"Q\" is not part of a problem: expected only q k v g beta a b A_log dt_bias state parents count "
       "slots; remove or "
       "rename it"},
      {"unknown_dtype", minimal("q", entry("F64", "[1,1,1,2]", "[0,8]")),
       "f: tensor \"q\": dtype F64: expected F32, BF16, F16, I32 or I64; convert it before saving"},
      {"float_parents", minimal("parents", entry("F32", "[1,1]", "[48,52]")),
       "f: tensor \"parents\": dtype f32: expected I32 or I64"},
      {"integer_q", minimal("q", entry("I32", "[1,1,1,2]", "[0,8]")),
       "f: tensor \"q\": dtype i32: expected F32, BF16 or F16"},
      {"missing_shape", minimal("q", "{\"dtype\":\"F32\",\"data_offsets\":[0,8]}"),
       "f: tensor \"q\": expected dtype, shape and data_offsets, shape is missing"},
      {"entry_is_a_number", minimal("q", "3"),
       "f: tensor \"q\": expected an object with dtype, shape and data_offsets, found number"},
      {"negative_extent", minimal("q", entry("F32", "[1,1,-1,2]", "[0,8]")),
       "f: tensor \"q\": shape [1,1,-1,2]: expected extents of 0 or more"},
      {"fractional_extent", minimal("q", entry("F32", "[1,1,1,2.0]", "[0,8]")),
       "f: tensor \"q\": shape [1,1,1,2.0]: expected extents of 0 or more"},
      {"overflowing_shape", minimal("q", entry("F32", "[4294967296,4294967296,4294967296,2]", "[0,8]")),
       "f: tensor \"q\": shape [4294967296,4294967296,4294967296,2]: expected at most 2^60 elements"},
      {"wrong_bytes", minimal("q", entry("F32", "[1,1,1,3]", "[0,8]")),
       "f: tensor \"q\": data_offsets [0,8] hold 8 bytes: expected 12 for F32 [1,1,1,3]"},
      {"offsets_past_end", minimal("parents", entry("I32", "[1,1]", "[52,56]")),
       "f: tensor \"parents\": data_offsets [52,56]: expected begin <= end <= 52, the bytes of data in the file"},
      {"offsets_backwards", minimal("q", entry("F32", "[1,1,1,2]", "[8,0]")),
       "f: tensor \"q\": data_offsets [8,0]: expected begin <= end <= 52, the bytes of data in the file"},
      {"offsets_negative", minimal("q", entry("F32", "[1,1,1,2]", "[-8,0]")),
       "f: tensor \"q\": data_offsets [-8,0]: expected [begin, end] of 0 or more bytes"},
      {"overlap", minimal("k", entry("F32", "[1,1,1,2]", "[4,12]")),
       "f: tensor \"k\" begins at byte 4 of the data: expected 8, it overlaps the tensor before it"},
      {"hole", minimal("k", entry("F32", "[1,1,1,1]", "[12,16]")),
       "f: tensor \"k\" begins at byte 12 of the data: expected 8, there is a hole before it"},
      {"trailing", minimal("", "", 3), "f: the tensors end at byte 52 of the data: expected 55, the end of the file"},
      {"wrong_axes", minimal("v", entry("F32", "[1,2]", "[16,24]")),
       "f: tensor v has shape [1, 2]: expected [B=1, T=1, HV, V]"},
      {"extents_disagree", minimal("state", entry("F32", "[2,1,1,2]", "[32,48]")),
       "f: tensor state has shape [2, 1, 1, 2]: expected [B=1, HV=1, V=2, K=2]"},
      {"both_gate_forms", minimal("+", "\"a\":" + entry("F32", "[1,1,1]", "[52,56]"), 4),
       "f: tensors of both gate forms: expected either g and beta, or a, b, A_log and dt_bias"},
      {"metadata_number", meta("{\"scale\":1}"), "f: __metadata__ \"scale\": expected a string, found number"},
      {"metadata_layout", meta("{\"state_layout\":\"VK\"}"),
       "f: __metadata__ state_layout = \"VK\": expected vk ([slots,HV,V,K]) or kv ([slots,HV,K,V])"},
      {"metadata_flag", meta("{\"l2norm\":\"yes\"}"), "f: __metadata__ l2norm = \"yes\": expected true or false"},
      {"metadata_scale", meta("{\"scale\":\"0.5x\"}"),
       "f: __metadata__ scale = \"0.5x\": expected a finite number, or 0 for K^-0.5"},
      {"metadata_scale_nan", meta("{\"scale\":\"nan\"}"),
       "f: __metadata__ scale = \"nan\": expected a finite number, or 0 for K^-0.5"},
  };
}

class MalformedFile : public testing::TestWithParam<Malformed> {};
TEST_P(MalformedFile, IsRefused) {
  const auto problem = parse_safetensors(GetParam().bytes, "f");
  ASSERT_FALSE(problem);
  EXPECT_EQ(problem.error().status, CANOPY_INVALID);
  std::string expected = GetParam().message, found = problem.error().message;
  if (expected.size() > 3 && expected.substr(expected.size() - 3) == "...") {
    expected.resize(expected.size() - 3), found.resize(std::min(found.size(), expected.size()));
  }
  EXPECT_EQ(found, expected);
}
INSTANTIATE_TEST_SUITE_P(Safetensors, MalformedFile, testing::ValuesIn(malformed()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Safetensors, DeepNestingIsAnErrorNotACrash) {
  EXPECT_FALSE(parse_safetensors(file_of(std::string(200000, '['), 0), "deep"));
  EXPECT_FALSE(
      parse_safetensors(file_of("{\"q\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0), "deep"));
}

TEST(Files, MissingFileAndDirectory) {
  const auto missing = read_problem("/nonexistent/problem.safetensors");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "/nonexistent/problem.safetensors: cannot be read: No such file or directory");
  const std::string directory = testing::TempDir();
  EXPECT_EQ(read_problem(directory).error().message, directory + ": is a directory, expected a safetensors file");
}

TEST(Files, WritingReplacesWholeOrNotAtAll) {
  const std::filesystem::path directory = std::filesystem::path(testing::TempDir()) / "canopy_files";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  const auto names = [&] {
    std::vector<std::string> out;
    for (const auto& item : std::filesystem::directory_iterator(directory)) out.push_back(item.path().filename());
    return out;
  };
  const std::string path = directory / "out";
  ASSERT_TRUE(write_file(path, "first").ok());
  ASSERT_TRUE(write_file(path, "second").ok());
  std::string content;
  std::getline(std::ifstream(path), content);
  EXPECT_EQ(content, "second");
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
  const Error error = write_file(directory / "missing" / "out", "x");
  EXPECT_EQ(error.status, CANOPY_INVALID);
  EXPECT_EQ(error.message,
            (directory / "missing" / "out").string() + ": cannot create a file beside it: No such file or directory");
  std::filesystem::create_symlink("out", directory / "link");
  ASSERT_TRUE(write_file(directory / "link", "third").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_TRUE(write_file("/dev/null", "gone").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace canopy::host
