// The built program as a user drives it: exit statuses, valid JSON on standard output, messages, files.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support.hpp"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Ended {
  int status = -1;  // exit status, or -signal
  std::string out, err;
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Program : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "canopy-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }

  // Output goes through files, so that neither stream can block the other; `closed`: to a pipe that nobody reads.
  Ended run(std::vector<std::string> arguments, bool closed = false) {
    arguments.insert(arguments.begin(), CANOPY_PROGRAM_PATH);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const fs::path out = folder / "stdout", err = folder / "stderr";
    const pid_t child = fork();
    if (child == 0) {
      if (closed) {
        int ends[2];
        if (pipe(ends) != 0) _exit(120);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]), close(ends[1]);
      } else if (!std::freopen(out.c_str(), "wb", stdout)) {
        _exit(121);
      }
      if (!std::freopen(err.c_str(), "wb", stderr) || !std::freopen("/dev/null", "rb", stdin)) _exit(122);
      execv(argv[0], argv.data());
      _exit(123);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), closed ? "" : read_file(out), read_file(err)};
  }

  Json run_json(std::vector<std::string> arguments, int expected = 0) {
    arguments.push_back("--json");
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.status, expected) << ended.err;
    EXPECT_EQ(ended.err, "");
    Json json = Json::parse(ended.out, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << ended.out;
    return json;
  }

  void expect_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& said) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.status, 2) << ended.out << ended.err;
    EXPECT_EQ(ended.out, "");
    for (const std::string& words : said)
      EXPECT_NE(ended.err.find(words), std::string::npos) << words << " not in: " << ended.err;
  }

  std::string file(const std::string& name) { return (folder / name).string(); }

  // A small problem on disk.
  std::string saved(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"verify",
                                       "--family",
                                       "best-first",
                                       "--nodes",
                                       "24",
                                       "--heads",
                                       "1",
                                       "--heads-v",
                                       "2",
                                       "--dim-k",
                                       "32",
                                       "--dim-v",
                                       "16",
                                       "--seed",
                                       "3",
                                       "--save",
                                       file("problem.safetensors")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return file("problem.safetensors");
  }

  fs::path folder;
};

// Header and data of a safetensors file.
struct Tensors {
  Json header;
  std::string data;
  explicit Tensors(const std::string& path) {
    const std::string bytes = read_file(path);
    if (bytes.size() < 8) return;
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    header = Json::parse(bytes.substr(8, length), nullptr, false);
    data = bytes.substr(8 + length);
  }
  std::string bytes(const std::string& name) const {
    const auto ends = header.at(name).at("data_offsets");
    return data.substr(ends[0], ends[1].get<std::size_t>() - ends[0].get<std::size_t>());
  }
  std::vector<float> floats(const std::string& name) const {
    const std::string raw = bytes(name);
    std::vector<float> values(raw.size() / 4);
    std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
};

TEST_F(Program, HelpIsGoodAndUsageErrorsAreTwo) {
  for (const char* command : {"tree", "verify", "commit", "study", "bench", "tune", "explain", "env", "demo"}) {
    const Ended ended = run({command, "--help"});
    EXPECT_EQ(ended.status, 0) << command;
    EXPECT_NE(ended.out.find("--json"), std::string::npos) << command;
  }
  EXPECT_EQ(run({"--help"}).status, 0);
  EXPECT_EQ(run({"--version"}).status, 0);
  expect_refused({}, {"subcommand"});
  expect_refused({"prune"}, {"prune"});
  expect_refused({"verify", "--colour"}, {"--colour"});
  expect_refused({"verify", "--family", "chain", "--nodes", "257"}, {"--nodes", "257", "256"});
  expect_refused({"verify", "--family", "chain", "--gates", "strong"}, {"--gates", "root-strong", "'strong'"});
}

TEST_F(Program, EnvNamesTheMachineAndTheImplementations) {
  const Json json = run_json({"env"});
  for (const char* key : {"canopy", "commit", "compiler", "cpu", "gpu", "build_type"})
    EXPECT_TRUE(json[key].is_string()) << key;
  EXPECT_GE(json["cores"].get<int>(), 1);
  EXPECT_GT(json["implementations"].size(), 0u);
}

TEST_F(Program, VerifyChecksEveryImplementationOfAMadeProblem) {
  const Json json =
      run_json({"verify", "--family", "random", "--nodes", "40", "--batch", "2",   "--heads", "2",        "--heads-v",
                "4",      "--dim-k",  "64",     "--dim-v", "64", "--impl",  "all", "--stash", "--repeat", "2"});
  EXPECT_EQ(json["problem"]["nodes"], 40);
  EXPECT_EQ(json["problem"]["trees"].size(), 2u);
  ASSERT_GT(json["implementations"].size(), 0u);
  for (const Json& entry : json["implementations"]) {
    EXPECT_TRUE(entry["passed"].get<bool>()) << entry;
    EXPECT_LE(entry["relative"].get<double>(), entry["tolerance"]["relative"].get<double>()) << entry;
    EXPECT_GT(entry["relative"].get<double>(), 0) << entry;
    EXPECT_TRUE(entry["stash"]["passed"].get<bool>()) << entry;
  }
}

TEST_F(Program, AFailedCheckIsOne) {
  // Values past 65504 do not fit fp16: the output holds Inf where the oracle is finite.
  const Json json = run_json({"verify", "--family", "chain", "--nodes",   "4",  "--heads", "1",   "--heads-v",
                              "1",      "--dim-k",  "16",    "--dim-v",   "16", "--input", "f32", "--state-scale",
                              "1e8",    "--gates",  "zero",  "--o-dtype", "f16"},
                             1);
  EXPECT_FALSE(json["passed"].get<bool>());
}

TEST_F(Program, VerifyWritesOutputsWithZerosPastTheCount) {
  const std::string problem = saved({"--batch", "4", "--ragged"});
  const std::string out = file("out.safetensors");
  ASSERT_EQ(run({"verify", problem, "--out", out, "--stash"}).status, 0);
  const Tensors in(problem), written(out);
  EXPECT_EQ(written.header["o"]["dtype"], "F32");
  EXPECT_EQ(written.header["o"]["shape"], Json({4, 24, 2, 16}));
  EXPECT_EQ(written.header["U"]["shape"], Json({4, 24, 2, 16}));
  EXPECT_EQ(written.header["l"]["shape"], Json({4, 24, 2}));
  const std::string counts = in.bytes("count");
  const std::vector<float> o = written.floats("o");
  int dead = 0;
  for (int b = 0; b < 4; ++b) {
    std::int32_t count;
    std::memcpy(&count, &counts[4 * b], 4);
    for (int t = 0; t < 24; ++t) {
      float sum = 0;
      for (int i = 0; i < 32; ++i) sum += std::abs(o[(b * 24 + t) * 32 + i]);
      EXPECT_EQ(sum > 0, t < count) << b << ' ' << t;
      dead += t >= count;
    }
  }
  EXPECT_GT(dead, 0);
  ASSERT_EQ(run({"verify", problem, "--out", out, "--o-dtype", "bf16"}).status, 0);
  EXPECT_EQ(Tensors(out).header["o"]["dtype"], "BF16");
}

TEST_F(Program, BadInputIsTwoAndWritesNothing) {
  const std::string problem = saved(), out = file("out.safetensors"), broken = file("broken.safetensors");
  const std::string bytes = read_file(problem);
  const auto write = [&](const std::string& text) { std::ofstream(broken, std::ios::binary) << text; };
  for (const std::string& text : {std::string(), bytes.substr(0, 5), bytes.substr(0, 100),
                                  bytes.substr(0, bytes.size() - 1), std::string(64, '\xff')}) {
    write(text);
    expect_refused({"verify", broken, "--out", out}, {"broken.safetensors"});
    expect_refused({"commit", broken, "--leaf", "0", "--out", out}, {"broken.safetensors"});
    expect_refused({"explain", broken}, {"broken.safetensors"});
  }
  std::string bad_tree = bytes;
  const Tensors tensors(problem);
  const std::size_t parents =
      bytes.size() - tensors.data.size() + tensors.header["parents"]["data_offsets"][0].get<std::size_t>();
  bad_tree[parents + 4 * 5] = 9;  // node 5 below node 9
  write(bad_tree);
  expect_refused({"verify", broken, "--out", out}, {"broken.safetensors: trees.parents", "5", "9"});
  expect_refused({"commit", broken, "--leaf", "0", "--out", out}, {"broken.safetensors: trees.parents", "5", "9"});
  expect_refused({"verify", file("none.safetensors")}, {"none.safetensors", "No such file"});
  expect_refused({"verify"}, {"--family"});
  expect_refused({"verify", problem, "--nodes", "8"}, {"--nodes", "problem.safetensors"});
  expect_refused({"verify", problem, "--impl", "gpu", "--out", out}, {"--impl", "cpu_closed_form", "'gpu'"});
  expect_refused({"verify", "--family", "oak"}, {"oak", "best-first"});
  expect_refused({"verify", "--family", "chain", "--heads", "2", "--heads-v", "3"}, {"3", "2"});
  expect_refused({"verify", "--self-test", "--nodes", "8"}, {"--nodes"});
  expect_refused({"verify", problem, "--out", file("no/such/folder")}, {"no/such/folder"});
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Program, CommitByEveryMethod) {
  const std::string problem = saved({"--batch", "3", "--state", "bf16", "--layout", "kv"}),
                    out = file("state.safetensors");
  const Json json = run_json({"commit", problem, "--leaf=11,-1,23", "--method", "all", "--out", out});
  ASSERT_EQ(json["commits"].size(), 3u);
  for (const Json& entry : json["commits"]) {
    EXPECT_TRUE(entry["passed"].get<bool>()) << entry;
    EXPECT_TRUE(entry["untouched"].get<bool>()) << entry;
  }
  const Tensors before(problem), after(out);
  EXPECT_EQ(after.header["state"]["dtype"], "BF16");
  EXPECT_EQ(after.header["state"]["shape"], before.header["state"]["shape"]);
  EXPECT_EQ(after.header["__metadata__"]["state_layout"], "kv");
  const std::string old = before.bytes("state"), fresh = after.bytes("state");
  const std::size_t third = old.size() / 3;
  EXPECT_NE(old.substr(0, third), fresh.substr(0, third));
  EXPECT_EQ(old.substr(third, third), fresh.substr(third, third));  // -1: skipped
  EXPECT_NE(old.substr(2 * third), fresh.substr(2 * third));
}

TEST_F(Program, CommitRefusesLeavesThatAreNotThere) {
  const std::string problem = saved({"--batch", "2"}), out = file("state.safetensors");
  expect_refused({"commit", problem, "--leaf", "24", "--out", out}, {"--leaf", "24 nodes", "0 to 23"});
  expect_refused({"commit", problem, "--leaf", "1,2,3", "--out", out}, {"--leaf", "2 sequences", "3"});
  expect_refused({"commit", problem, "--leaf", "1,x", "--out", out}, {"--leaf", "'x'"});
  expect_refused({"commit", problem, "--leaf", "", "--out", out}, {"--leaf"});
  expect_refused({"commit", problem, "--out", out}, {"--leaf"});
  expect_refused({"commit", problem, "--leaf", "1", "--impl", "none", "--out", out},
                 {"--impl", "cpu_commit_resolve", "'none'"});
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Program, ExplainNamesTheChoice) {
  const Json json = run_json({"explain", "--family", "best-first", "--nodes", "128"});
  bool known = false;
  for (const Json& entry : json["implementations"])
    known = known || (entry["name"] == json["choice"] && entry["accepts"]);
  EXPECT_TRUE(known) << json;
  EXPECT_NE(run({"explain", "--family", "chain", "--nodes", "4"}).out.find("cpu_"), std::string::npos);
  // The CPU computes in fp32, with a stash or without.
  EXPECT_EQ(run_json({"explain", "--family", "best-first", "--nodes", "128", "--stash"}), json);
}

TEST_F(Program, DemoReadsTheFolderItIsGiven) {
  fs::create_directory(folder / "trees");
  std::ofstream(folder / "trees" / "fork.json") << R"({"format": "parents", "parents": [-1, 0, 0, 1]})";
  const Json json = run_json({"demo", "--trees", file("trees"), "--repeat", "1"});
  ASSERT_EQ(json["trees"].size(), 1u);
  EXPECT_EQ(json["trees"][0]["nodes"], 4);
  EXPECT_TRUE(json["trees"][0]["passed"].get<bool>());
  EXPECT_NE(run({"demo", "--trees", file("trees"), "--repeat", "1"}).out.find("fork"), std::string::npos);
  std::ofstream(folder / "trees" / "bad.json") << R"({"format": "parents", "parents": [-1, 3]})";
  expect_refused({"demo", "--trees", file("trees"), "--json"}, {"bad.json", "3"});
  expect_refused({"demo", "--trees", file("none")}, {"--trees", "none"});
}

TEST_F(Program, AClosedPipeIsNotACrash) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"env"},
                                             {"env", "--json"},
                                             {"explain", "--family", "chain", "--nodes", "4"},
                                             {"tree", "--family", "chain", "--nodes", "256"}})
    EXPECT_GE(run(arguments, true).status, 0) << arguments[0];
}

}  // namespace
