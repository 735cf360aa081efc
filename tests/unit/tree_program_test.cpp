// canopy tree as a user runs it: what it prints, what it reads back, exit status 2 and a silent standard output for bad
// input.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "support.hpp"

namespace {

using Json = nlohmann::json;
using Ints = std::vector<int>;

struct Ended {
  int status = -1;
  std::string text;
};

// Standard output, or standard error alone with `errors`. `arguments` go through the shell.
Ended run(const std::string& arguments, bool errors = false) {
  const std::string command =
      "\"" CANOPY_PROGRAM_PATH "\" tree " + arguments + (errors ? " 2>&1 >/dev/null" : " 2>/dev/null");
  Ended ended;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return ended;
  char buffer[4096];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) ended.text.append(buffer, got);
  const int status = pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

std::string file(const char* name) {
  return "\"" + canopy::test::source_file(std::string("data/trees/") + name) + "\"";
}

TEST(TreeProgram, SummaryAndDrawing) {
  const Ended one = run("--family caterpillar --nodes 4");
  EXPECT_EQ(one.status, 0);
  EXPECT_EQ(one.text,
            "4 nodes, depth 2, 2 leaves; 16 x 16 blocks of the solve: 1 dense -> 1 path-compressed\n"
            "0\n├─ 1\n│  └─ 3\n└─ 2\n");
  EXPECT_EQ(run("--family caterpillar --nodes 4 --to ascii").text, "0\n├─ 1\n│  └─ 3\n└─ 2\n");
  const Ended several = run(file("sglang-retrieve.json"));
  EXPECT_NE(several.text.find("tree 0 of 2\n6 nodes"), std::string::npos);
  EXPECT_NE(several.text.find("\n\ntree 1 of 2\n6 nodes"), std::string::npos);
}

TEST(TreeProgram, JsonHasOrdersAndBlocks) {
  const Ended ended = run("--family chain --nodes 18 --json");
  ASSERT_EQ(ended.status, 0);
  const Json json = Json::parse(ended.text);
  EXPECT_EQ(json["nodes"], 18);
  EXPECT_EQ(json["depth"], 17);
  EXPECT_EQ(json["dense_blocks"], 3);
  EXPECT_EQ(json["compressed_blocks"], 3);
  EXPECT_EQ(json["blocks"], Json::parse(R"([{"first": 0, "rows": 16, "ancestors": 0},
                                            {"first": 16, "rows": 2, "ancestors": 16}])"));
  for (const char* key : {"parents", "depths", "dfs_order", "level_order", "subtree_sizes"}) {
    EXPECT_EQ(json[key].size(), 18u) << key;
  }
  EXPECT_EQ(json["subtree_sizes"][0], 18);
  EXPECT_EQ(Json::parse(run("--family skewed --nodes 256 --depth 48 --json").text)["compressed_blocks"], 46);
}

TEST(TreeProgram, SeveralTreesAndIndex) {
  const Json all = Json::parse(run(file("sglang-retrieve.json") + " --json").text);
  ASSERT_EQ(all["trees"].size(), 2u);
  EXPECT_EQ(all["trees"][1]["parents"], Json(Ints{-1, 0, 1, 2, 0, 4}));
  const Json one = Json::parse(run(file("sglang-retrieve.json") + " --json --index 1").text);
  EXPECT_EQ(one["parents"], Json(Ints{-1, 0, 1, 2, 0, 4}));
}

TEST(TreeProgram, EveryFormPipesIntoTheNext) {
  for (const char* name :
       {"ddtree-budget.json", "medusa-mc_sim_7b_63.json", "sequoia-L40-CNN-68m-13b-stochastic-S128.json",
        "sglang-retrieve.json", "vllm-token-tree.json"}) {
    const std::string direct = run(file(name) + " --json").text;
    EXPECT_EQ(run(file(name) + " --json | \"" CANOPY_PROGRAM_PATH "\" tree - --json").text, direct) << name;
    for (const char* form : {"parents", "retrieve", "successors", "mask"}) {
      const std::string flag =
          std::string(" --to ") + form + " | \"" CANOPY_PROGRAM_PATH "\" tree - --json --from " + form;
      EXPECT_EQ(run(file(name) + flag).text, direct) << name << " " << form;
    }
    // Choices and tuples renumber a tree once; a second time changes nothing.
    for (const char* form : {"choices", "tuples"}) {
      const std::string flag = std::string(" --to ") + form;
      const std::string once = run(file(name) + flag).text;
      EXPECT_NE(once, "");
      EXPECT_EQ(run(file(name) + flag + " | \"" CANOPY_PROGRAM_PATH "\" tree -" + flag).text, once)
          << name << " " << form;
    }
  }
}

TEST(TreeProgram, BadInput) {
  const std::string vllm = file("vllm-token-tree.json");
  const std::pair<std::string, const char*> cases[] = {
      {"", "expected FILE (\"-\" for standard input) or --family NAME"},
      {vllm + " --family chain", "give one of the two"},
      {vllm + " --nodes 8", "--nodes shapes a family: add --family NAME"},
      {"--family chain --from mask", "--from is the form of a FILE"},
      {"no-such-file", "no-such-file: cannot open: No such file or directory"},
      {vllm + " --index 3", "--index 3: expected 0..2"},
      {vllm + " --index -1", "--index: Value -1 not in range"},
      {"--family random --seed -1", "--seed: expected an integer 0 to 2^64 - 1, got '-1'"},
      {"--family random --seed 18446744073709551616", "got '18446744073709551616'"},
      {vllm + " --to oak", "--to: the form \"oak\" is unknown"},
      {vllm + " --from oak", "--from: the form \"oak\" is unknown"},
      {vllm + " --from mask", "format: the text says tuples, the caller asked for mask"},
      {vllm + " --to ascii --json", "--to ascii is no JSON"},
      {file("ddtree-budget.json") + " --to widths", "the tree has no level widths"},
      {"--family best-first --top-k 2 --depth 3 --nodes 64", "holds at most 15 nodes"},
      {"- </dev/null", "<stdin>: the text is empty"},
      {"--family chain --nodes 4 --to parents | \"" CANOPY_PROGRAM_PATH "\" tree - --from choices",
       "<stdin>: format: the text says parents, the caller asked for choices"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Ended out = run(arguments), errors = run(arguments, true);
    EXPECT_EQ(out.status, 2) << arguments;
    EXPECT_EQ(out.text, "") << arguments;
    EXPECT_NE(errors.text.find(expected), std::string::npos) << arguments << "\n" << errors.text;
  }
}

}  // namespace
