// Rows of the dispatch tables for calls that store u: what they hold for, how they are written and read, and how cells
// that stored it make them and judge them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "dispatch/dispatch.hpp"
#include "dispatch/file.hpp"
#include "host/tune.hpp"

namespace canopy {
namespace {

using dispatch::Row;
using host::Timing;
using host::Timings;

std::string words(const std::vector<Row>& rows) {
  std::string out;
  for (const Row& row : rows) out += dispatch::condition(row) + " -> " + row.implementation + "\n";
  return out;
}

TEST(StashRows, HoldForCallsWithAStashAlone) {
  const Row row{.max_nodes = 16, .stash = true, .implementation = "x"};
  EXPECT_EQ(dispatch::condition(row), "stash and nodes <= 16");
  EXPECT_TRUE(dispatch::holds(row, {.nodes = 16, .precision = CANOPY_PRECISION_PRECISE, .stash = true}));
  EXPECT_FALSE(dispatch::holds(row, {.nodes = 17, .precision = CANOPY_PRECISION_PRECISE, .stash = true}));
  EXPECT_FALSE(dispatch::holds(row, {.nodes = 16, .precision = CANOPY_PRECISION_PRECISE}));
  // Where no row of theirs is left, those of what a stash is computed in hold, and those of any precision.
  for (const int precision : {-1, int{CANOPY_PRECISION_PRECISE}})
    EXPECT_TRUE(dispatch::holds({.precision = precision}, {.precision = CANOPY_PRECISION_PRECISE, .stash = true}));
}

TEST(StashRows, AreWrittenAndReadBack) {
  const auto all = verify_implementations();
  const auto cuda = std::find_if(all.begin(), all.end(), [](const auto& each) { return each.device == CANOPY_CUDA; });
  const std::string name = cuda == all.end() ? "cuda_any" : cuda->name;
  const std::string text = "canopy dispatch 1\nfor cuda: Some GPU\nstash and nodes <= 16 -> " + name + "\nalways -> " +
                           name + "\n";
  const auto read = dispatch::parse_tables(text, "own");
  ASSERT_TRUE(read) << read.error().message;
  const auto& rows = read->tables[0].rows;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].stash);
  EXPECT_FALSE(rows[1].stash);
  if (cuda != all.end()) {  // elsewhere names of kernels are not kept
    EXPECT_EQ(dispatch::format_table(read->tables[0], ""), text);
  }
  EXPECT_EQ(host::format_rows({{.max_nodes = 16, .stash = true, .implementation = "x"}}),
            "{.max_nodes = 16, .stash = true, .implementation = \"x\"},\n");
}

TEST(StashRows, HaveNoPlaceInATableOfACpu) {
  const std::string rows = "stash -> cpu_closed_form\nalways -> cpu_closed_form\n";
  const auto read = dispatch::parse_tables("canopy dispatch 1\nfor cpu: X\n" + rows, "own");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message,
            "own:3: expected 'stash' in a table of a GPU only, got it for cpu, where calls with a stash ask the rows "
            "of all others; leave the row out");
  const auto odd = dispatch::parse_tables("canopy dispatch 1\nfor cuda: X\nstash u -> x\n", "own");
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message.find("'precision NAME' or 'stash', got 'stash u'"), std::string::npos)
      << odd.error().message;
}

// Calls without a stash need a row too.
TEST(StashRows, WithoutACatchAllATableIsUnfinished) {
  const auto read = dispatch::parse_tables("canopy dispatch 1\nfor cuda: X\nstash -> cuda_fused\n", "own");
  ASSERT_FALSE(read);
}

// fused wins on o alone and, with u, from 64 nodes on.
Timings measured() {
  Timings timings;
  const auto add = [&](const char* name, int nodes, double median, bool stash, int precision = 0) {
    const char* const tree = stash ? "chain, u stored" : "chain";
    timings.cells.push_back({name, precision, {}, 32, nodes, tree, median, nodes - 1, stash});
  };
  for (const int nodes : {4, 16, 64}) {
    add("fused", nodes, 3, false), add("resident", nodes, nodes, false);
    add("fused", nodes, 20, true), add("resident", nodes, nodes, true);
    add("fused", nodes, 20, false, CANOPY_PRECISION_PRECISE), add("split", nodes, 19, false, CANOPY_PRECISION_PRECISE);
  }
  return timings;
}

TEST(StashRows, ComeFirstAndFromTheirOwnCells) {
  const auto rows = host::rows_from(measured());
  EXPECT_EQ(words(rows),
            "stash and nodes <= 16 -> resident\nstash -> fused\nprecision precise -> split\n"
            "always -> fused\nalways -> resident\n");
}

TEST(StashRows, AreHeldToTheRule) {
  const Timings timings = measured();
  const auto rows = host::rows_from(timings);
  EXPECT_TRUE(host::judge_table(rows, timings).broken.empty());
  // A table without them leads to the rows of precise, whose split nobody measured with a stash, and then to fused.
  std::vector<Row> without;
  for (const Row& row : rows)
    if (!row.stash) without.push_back(row);
  const auto verdict = host::judge_table(without, timings);
  EXPECT_EQ(verdict.worst, 5);
  EXPECT_EQ(verdict.worst_cell, "T=4 heads=32 chain, u stored");
  ASSERT_FALSE(verdict.broken.empty());
  EXPECT_NE(verdict.broken.back().find("chain, u stored: fused takes 1.25 times resident"), std::string::npos)
      << verdict.broken.back();
}

TEST(StashRows, ASizeWithoutSuchCellsTakesTheNextLarger) {
  Timings timings = measured();
  std::erase_if(timings.cells, [](const Timing& cell) { return cell.stash && cell.nodes == 16; });
  EXPECT_EQ(words(host::rows_from(timings)).rfind("stash and nodes <= 4 -> resident\nstash -> fused\nprecision", 0), 0u);
}

TEST(StashRows, AreReadFromResultFiles) {
  Timings timings;
  const std::string cell =
      R"(,"device":"cuda","precision":"default","B":2,"T":16,"depth":3,"family":"star","H":16,"HV":32,"K":128,"V":128,)"
      R"("state":"f32","cache":"cold","median_us":7.5,"relative":1e-6)";
  const std::string text = R"({"type":"environment","gpu":{"name":"GPU X","compute_capability":90}})"
                           "\n{\"type\":\"cell\",\"contender\":\"cuda_fused\"" + cell + "}\n" +
                           "{\"type\":\"cell\",\"contender\":\"cuda_fused\"" + cell + ",\"stash\":true}\n";
  const Error error = host::read_timings(text, "x.jsonl", CANOPY_CUDA, timings);
  ASSERT_TRUE(error.ok()) << error.message;
  ASSERT_EQ(timings.cells.size(), 2u);
  EXPECT_FALSE(timings.cells[0].stash);
  EXPECT_TRUE(timings.cells[1].stash);
  EXPECT_EQ(timings.cells[1].variant, timings.cells[0].variant + ", u stored");
}

}  // namespace
}  // namespace canopy
