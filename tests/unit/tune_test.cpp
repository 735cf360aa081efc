// From measured times to a dispatch table, tables as text, and which machine's table is taken.
#include "host/tune.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "dispatch/file.hpp"

namespace canopy {
namespace {

using dispatch::Row;
using host::Timing;
using host::Timings;

// T, B * HV, the rest of the cell, and what two implementations took.
void add(Timings& timings, int nodes, int heads, double closed, double resident, const std::string& variant = "chain",
         int precision = 0, std::vector<int> same_as = {}) {
  timings.cells.push_back({"closed", precision, same_as, heads, nodes, variant, closed});
  timings.cells.push_back({"resident", precision, same_as, heads, nodes, variant, resident});
}

std::string words(const std::vector<Row>& rows) {
  std::string out;
  for (const Row& row : rows) out += dispatch::condition(row) + " -> " + row.implementation + "\n";
  return out;
}

TEST(Tune, OneSizeDecidesUpToItselfAndTheLargestBeyond) {
  Timings timings;
  add(timings, 4, 32, 10, 5);
  add(timings, 8, 32, 10, 9);
  add(timings, 64, 32, 10, 50);
  const auto rows = host::rows_from(timings);
  EXPECT_EQ(words(rows), "nodes <= 8 -> resident\nalways -> closed\nalways -> resident\n");
  const auto verdict = host::judge_table(rows, timings);
  EXPECT_EQ(verdict.worst, 1);
  EXPECT_TRUE(verdict.broken.empty());
}

TEST(Tune, BandsOfHeads) {
  Timings timings;
  for (const int heads : {32, 64, 512}) {
    add(timings, 4, heads, 10, heads < 512 ? 5 : 20);
    add(timings, 64, heads, 10, 50);
  }
  EXPECT_EQ(words(host::rows_from(timings)),
            "nodes <= 4 and heads <= 64 -> resident\nalways -> closed\nalways -> resident\n");
}

TEST(Tune, NoiseMakesNoRow) {
  Timings timings;
  add(timings, 4, 32, 10.15, 10);  // 1.5% apart, and the other one wins at the next size
  add(timings, 64, 32, 10, 50);
  EXPECT_EQ(words(host::rows_from(timings)), "always -> closed\nalways -> resident\n");
}

TEST(Tune, TheLeastWorstOfSeveralTreesOfOneSize) {
  Timings timings;
  add(timings, 16, 32, 10, 9.7, "chain");
  add(timings, 16, 32, 10, 30, "star");
  const auto rows = host::rows_from(timings);
  EXPECT_EQ(words(rows), "always -> closed\nalways -> resident\n");
  const auto verdict = host::judge_table(rows, timings);
  EXPECT_NEAR(verdict.worst, 10 / 9.7, 1e-12);
  EXPECT_TRUE(verdict.broken.empty());
  EXPECT_TRUE(verdict.unseen.empty());
}

// The mean decides then, not the worst; a table that chooses otherwise breaks the rule.
TEST(Tune, WhereTheWinnerDependsOnTheTree) {
  Timings timings;
  add(timings, 16, 32, 10, 8, "chain");
  add(timings, 16, 32, 10, 11.5, "star");
  add(timings, 16, 32, 10, 11.5, "random");
  const auto rows = host::rows_from(timings);
  EXPECT_EQ(words(rows), "always -> closed\nalways -> resident\n");
  const auto verdict = host::judge_table(rows, timings);
  EXPECT_TRUE(verdict.broken.empty());
  ASSERT_EQ(verdict.unseen.size(), 1u);
  EXPECT_EQ(verdict.unseen[0], "T=16 heads=32 chain: closed takes 1.25 times resident");
  auto others = rows;
  std::reverse(others.begin(), others.end());
  const auto wrong = host::judge_table(others, timings);
  EXPECT_EQ(wrong.broken.size(), 2u);
  EXPECT_TRUE(wrong.unseen.empty());
}

// A tree whose depth its callers may name: what two implementations took.
void add_tree(Timings& timings, int nodes, int heads, int depth, double closed, double resident) {
  for (const auto& [name, median] : {std::pair{"closed", closed}, {"resident", resident}})
    timings.cells.push_back({name, 0, {}, heads, nodes, "depth " + std::to_string(depth), median, depth});
}

TEST(Tune, ANamedDepthDecidesWhereTheSizeCannot) {
  Timings timings;
  for (const int heads : {32, 64})
    for (const int nodes : {16, 64}) {
      add_tree(timings, nodes, heads, nodes / 8, 10, 13);
      add_tree(timings, nodes, heads, nodes / 2, 10, 10.4);
      add_tree(timings, nodes, heads, nodes - 1, 10, heads == 32 ? 8.5 : 9.8);
    }
  const auto rows = host::rows_from(timings);
  EXPECT_EQ(words(rows), "heads <= 32 and depth >= 9 -> resident\nalways -> closed\nalways -> resident\n");
  const auto verdict = host::judge_table(rows, timings);
  EXPECT_NEAR(verdict.worst, 10.4 / 10, 1e-12) << verdict.worst_cell;  // T=64, depth 32
  EXPECT_NEAR(verdict.worst_unnamed, 10 / 8.5, 1e-12);
  EXPECT_TRUE(verdict.broken.empty());
  EXPECT_TRUE(verdict.unseen.empty());
  EXPECT_EQ(host::format_rows({rows[0]}), "{.max_heads = 32, .min_depth = 9, .implementation = \"resident\"},\n");
  // The same rows without the first break the rule, and could have kept it.
  const auto without = host::judge_table({rows.begin() + 1, rows.end()}, timings);
  EXPECT_EQ(without.broken.size(), 2u);
  EXPECT_EQ(without.broken[0], "T=16 heads=32 depth 15: closed takes 1.18 times resident");
}

TEST(Tune, ShallowTreesToo) {
  Timings timings;
  for (const int nodes : {16, 64}) {
    add_tree(timings, nodes, 32, 3, 10, 13);
    add_tree(timings, nodes, 32, nodes - 1, 20, 10);
  }
  EXPECT_EQ(words(host::rows_from(timings)), "depth <= 3 -> closed\nalways -> resident\nalways -> closed\n");
}

// Nothing was measured on every tree of a size: its depths have rows of their own, and the judge lives.
TEST(Tune, TreesThatShareNoImplementation) {
  Timings timings;
  const auto one = [&](int nodes, int depth, const char* fast, const char* slow) {
    timings.cells.push_back({fast, 0, {}, 32, nodes, "", 10, depth});
    timings.cells.push_back({slow, 0, {}, 32, nodes, "", 20, depth});
  };
  one(16, 3, "a", "b"), one(16, 15, "c", "d"), one(64, 3, "b", "a"), one(64, 63, "c", "d");
  const auto rows = host::rows_from(timings);
  const auto verdict = host::judge_table(rows, timings);
  EXPECT_EQ(verdict.worst, 1) << words(rows);
  EXPECT_TRUE(verdict.broken.empty()) << verdict.broken[0];
  EXPECT_FALSE(host::judge_table({rows.end() - 1, rows.end()}, timings).broken.empty());
}

// A group that nobody can keep gets what is best on it on the whole, also from a row that other groups asked for.
TEST(Tune, AGroupThatNobodyKeepsIsNoOneElses) {
  Timings timings;
  for (const int depth : {2, 6}) add_tree(timings, 16, 32, depth, 20, 10);
  for (const int depth : {4, 15}) add_tree(timings, 16, 32, depth, 10, 20);
  timings.cells.push_back({"closed", 0, {}, 32, 16, "another", 20, 4});
  timings.cells.push_back({"resident", 0, {}, 32, 16, "another", 19, 4});
  const auto rows = host::rows_from(timings);
  const auto verdict = host::judge_table(rows, timings);
  EXPECT_TRUE(verdict.broken.empty()) << verdict.broken[0] << "\n" << words(rows);
  EXPECT_EQ(verdict.unseen.size(), 1u);
}

// Where one choice keeps the rule on every tree of a size, callers who name no depth are owed it too.
TEST(Tune, TheRuleHoldsWithoutADepthWhereItCan) {
  Timings timings;
  for (const int depth : {3, 15}) add_tree(timings, 16, 32, depth, 20, 10);
  const Row resident{.min_depth = 1, .implementation = "resident"}, closed{.implementation = "closed"};
  const auto verdict = host::judge_table({resident, closed}, timings);
  EXPECT_EQ(verdict.worst, 1);
  ASSERT_EQ(verdict.broken.size(), 2u);
  EXPECT_EQ(verdict.broken[0], "T=16 heads=32 depth 3, no depth named: closed takes 2.00 times resident");
}

// One depth, two trees, two winners: no row helps.
TEST(Tune, WhatADepthDoesNotTellApartHasNoRow) {
  Timings timings;
  add_tree(timings, 16, 32, 4, 10, 8);
  timings.cells.push_back({"closed", 0, {}, 32, 16, "warm", 10, 4});
  timings.cells.push_back({"resident", 0, {}, 32, 16, "warm", 13, 4});
  const auto rows = host::rows_from(timings);
  EXPECT_EQ(words(rows), "always -> closed\nalways -> resident\n");
  EXPECT_EQ(host::judge_table(rows, timings).unseen.size(), 1u);
}

// Another tree of the size was measured by default only: of fp32 it says what resident takes and nothing of closed.
TEST(Tune, OnlyCellsThatWereAskedForAPrecisionDecideIt) {
  Timings timings;
  add(timings, 64, 32, 20, 50, "chain", CANOPY_PRECISION_FP32);
  for (const char* tree : {"chain", "star"}) {
    timings.cells.push_back({"closed", CANOPY_PRECISION_DEFAULT, {CANOPY_PRECISION_HALF}, 32, 64, tree, 10});
    timings.cells.push_back({"walk", CANOPY_PRECISION_DEFAULT, {CANOPY_PRECISION_FP32}, 32, 64, tree, 30});
  }
  const auto rows = host::rows_from(timings);
  EXPECT_EQ(words(rows), "precision fp32 -> closed\nalways -> closed\nalways -> walk\n");
  EXPECT_TRUE(host::judge_table(rows, timings).broken.empty());
}

TEST(Tune, PrecisionsThatWereAskedForHaveRowsOfTheirOwn) {
  Timings timings;
  add(timings, 64, 32, 10, 50, "chain", CANOPY_PRECISION_DEFAULT, {CANOPY_PRECISION_HALF});
  add(timings, 64, 32, 90, 50, "chain", CANOPY_PRECISION_FP32);
  const auto rows = host::rows_from(timings);
  EXPECT_EQ(words(rows), "precision fp32 -> resident\nalways -> closed\nalways -> resident\n");
  EXPECT_TRUE(host::judge_table(rows, timings).broken.empty());
  EXPECT_EQ(host::format_rows(rows),
            "{.precision = CANOPY_PRECISION_FP32, .implementation = \"resident\"},\n"
            "{.implementation = \"closed\"},\n{.implementation = \"resident\"},\n");
  // In the order of their declaration, as C++ wants it.
  EXPECT_EQ(
      host::format_rows({{.min_nodes = 2, .max_heads = 32, .precision = CANOPY_PRECISION_FAST, .implementation = "x"}}),
      "{.min_nodes = 2, .max_heads = 32, .precision = CANOPY_PRECISION_FAST, .implementation = \"x\"},\n");
}

TEST(Tune, WhatRefusesAShapeComesAfterWhatDoesNot) {
  Timings timings;
  add(timings, 4, 32, 10, 20);
  timings.cells.push_back({"rare", 0, {}, 32, 4, "chain", 1});  // the fastest of all, but not measured at T = 64
  add(timings, 64, 32, 10, 50);
  EXPECT_EQ(words(host::rows_from(timings)),
            "nodes <= 4 -> rare\nalways -> closed\nalways -> resident\nalways -> rare\n");
}

const char* const kEnvironment =
    R"({"type":"environment","cpu":"Some CPU","gpu":{"name":"GPU X","compute_capability":89}})";
std::string line(const std::string& contender, const std::string& more = "") {
  return "\n{\"type\":\"cell\",\"contender\":\"" + contender +
         "\",\"device\":\"cuda\",\"precision\":\"default\",\"same_as\":[\"half\"],\"B\":2,\"T\":16,\"depth\":3,"
         "\"family\":\"star\",\"H\":16,"
         "\"HV\":48,\"K\":128,\"V\":128,\"state\":\"f32\",\"cache\":\"cold\",\"median_us\":7.5,\"relative\":1e-3" +
         more + "}";
}

TEST(Timings, AreTheCellsThatTheDispatcherMayPick) {
  Timings timings;
  const std::string text = kEnvironment + line("cuda_fused") + line("cuda_fused precise") + line("floor") +
                           line("dispatched") + line("triton_fused precise") + line("cuda_wrong", ",\"passed\":false") +
                           line("cuda_named", ",\"named_only\":true") + line("cuda_commit_stash");
  const Error error = host::read_timings(text, "x.jsonl", CANOPY_CUDA, timings);
  ASSERT_TRUE(error.ok()) << error.message;
  EXPECT_EQ(timings.machine, "GPU X");
  EXPECT_EQ(timings.capability, 89);
  ASSERT_EQ(timings.cells.size(), 2u);
  const Timing& cell = timings.cells[0];
  EXPECT_EQ(cell.implementation, "cuda_fused");
  EXPECT_EQ(cell.heads, 96);
  EXPECT_EQ(cell.nodes, 16);
  EXPECT_EQ(cell.same_as, std::vector<int>{CANOPY_PRECISION_HALF});
  EXPECT_EQ(cell.variant, "star depth 3 K=128 V=128 HV/H=3 state f32 cold");
  EXPECT_EQ(cell.median, 7.5);
  EXPECT_EQ(cell.depth, 3);
}

TEST(Timings, RefuseDepthsThatNoTreeHas) {
  for (const char* depth : {"-1", "256"}) {
    Timings timings;
    std::string text = kEnvironment + line("cuda_fused");
    text.replace(text.find("\"depth\":3"), 9, std::string("\"depth\":") + depth);
    const Error error = host::read_timings(text, "x.jsonl", CANOPY_CUDA, timings);
    EXPECT_EQ(error.message, "x.jsonl:2: depth = " + std::string(depth) + ": expected 0 to 255");
  }
}

TEST(Timings, RefuseWhatIsNoResultFile) {
  const auto said = [](const std::string& text) {
    Timings timings;
    Error error = host::read_timings(kEnvironment + line("cuda_fused"), "a.jsonl", CANOPY_CUDA, timings);
    if (error.ok()) error = host::read_timings(text, "b.jsonl", CANOPY_CUDA, timings);
    return error.message;
  };
  EXPECT_EQ(said(kEnvironment + line("cuda_fused")), "");
  EXPECT_NE(said("{\"type\":").find("b.jsonl:1: "), std::string::npos);
  EXPECT_NE(said(line("cuda_fused")).find("b.jsonl:2: a cell before any environment record"), std::string::npos);
  EXPECT_NE(said(R"({"type":"environment","cpu":"c","gpu":{"name":"GPU Y"}})" + line("cuda_fused"))
                .find("measured on GPU Y, but the cells before it on GPU X"),
            std::string::npos);
}

TEST(Table, TextReadsBack) {
  dispatch::FileTable table{CANOPY_CPU, "Some CPU", "", {}};
  table.rows.push_back({.min_nodes = 2,
                        .max_nodes = 8,
                        .max_heads = 32,
                        .precision = CANOPY_PRECISION_FP32,
                        .implementation = "cpu_serial_resident"});
  table.rows.push_back({.min_heads = 64, .implementation = "cpu_serial_snapshot"});
  table.rows.push_back({.min_depth = 9, .max_depth = 40, .implementation = "cpu_serial_snapshot"});
  table.rows.push_back({.implementation = "cpu_closed_form"});
  const std::string text = dispatch::format_table(table, "two\nlines");
  const auto read = dispatch::parse_tables(text, "own");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->tables.size(), 1u);
  EXPECT_EQ(read->tables[0].machine, "Some CPU");
  EXPECT_EQ(read->tables[0].title, "own, table of Some CPU");
  EXPECT_EQ(words(read->tables[0].rows), words(table.rows));
  EXPECT_EQ(dispatch::format_table(read->tables[0], "two\nlines"), text);
}

TEST(Table, BadTextIsRefusedByItsLine) {
  const auto said = [](const std::string& text) {
    const auto read = dispatch::parse_tables(text, "own");
    return read ? std::string() : read.error().message;
  };
  const std::string head = "canopy dispatch 1\nfor cpu: X\n", last = "always -> cpu_closed_form\n";
  EXPECT_EQ(said(head + last), "");
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "own:0: expected 'canopy dispatch 1', found nothing"},
           {"canopy dispatch 2\n", "own:1: expected 'canopy dispatch 1', got 'canopy dispatch 2'"},
           {"canopy dispatch 1\n" + last, "own:2: expected 'for cpu: NAME' or 'for cuda: NAME'"},
           {head + "nodes <= 4 -> cpu_closed_form\n", "ends without a row 'always"},
           {head + "nodes < 4 -> cpu_closed_form\n" + last, "own:3: expected 'nodes <= N'"},
           {head + "nodes <= four -> cpu_closed_form\n" + last, "own:3: expected 'nodes <= N'"},
           {head + "depth < 4 -> cpu_closed_form\n" + last, "own:3: expected 'nodes <= N'"},
           {head +
                "nodes <= 9 and nodes <= 8 and nodes <= 7 and nodes <= 6 and nodes <= 5 and nodes <= 4 and nodes <= 3 "
                "and nodes <= 2 and nodes <= 1 -> cpu_closed_form\n" +
                last,
            "own:3: expected at most eight conditions, got more; leave some out"},
           {head + "precision odd -> cpu_closed_form\n" + last, "own:3: expected precision default"},
           {head + "always -> cpu_magic\n", "got 'cpu_magic'; run canopy tune again"},
           {head + "always cpu_closed_form\n", "own:3: expected 'CONDITION -> IMPLEMENTATION'"}})
    EXPECT_NE(said(text).find(message), std::string::npos) << text << said(text);
}

TEST(Table, OfTheNearestMachine) {
  const dispatch::Gpu gpus[] = {{"A", "", 80, {}}, {"B", "", 90, {}}, {"C", "", 90, {}}, {"D", "", 120, {}}};
  const auto taken = [&](const char* name, int capability) {
    return std::string(dispatch::nearest(gpus, {name, capability}).name);
  };
  EXPECT_EQ(taken("C", 90), "C");   // its name
  EXPECT_EQ(taken("Z", 120), "D");  // its compute capability
  EXPECT_EQ(taken("Z", 89), "A");   // the newest that is not newer
  EXPECT_EQ(taken("Z", 100), "B");
  EXPECT_EQ(taken("Z", 75), "A");  // older than all: the first
}

}  // namespace
}  // namespace canopy
