#include "tree/detect.hpp"

#include <algorithm>

#include "message.hpp"

namespace canopy::forms {
namespace {

using json::Kind;
using json::Value;

bool all(const std::vector<Value>& values, Kind kind) {
  return std::all_of(values.begin(), values.end(), [&](Value value) { return value.is(kind); });
}
bool is_minus_one(Value value) { return value.is(Kind::integer) && value.number() == -1; }
bool holds_minus_one(Value value) {
  const std::vector<Value> items = value.is(Kind::array) ? value.items() : std::vector<Value>{};
  return std::any_of(items.begin(), items.end(), is_minus_one);
}
bool starts_minus_one(const std::vector<Value>& row) { return !row.empty() && is_minus_one(row[0]); }

Error ambiguous(const char* what, const char* first, const char* second) {
  return Error::invalid(
      text("the array is ", what, ", which is ", first, " as well as ", second, ": name the form with --from"));
}

// A flat array of integers.
Result<TreeFormat> detect_numbers(const std::vector<Value>& numbers) {
  if (starts_minus_one(numbers)) return TreeFormat::parents;
  if (numbers[0].number() >= 1) return TreeFormat::widths;
  return Error::invalid(
      text("[0] = ", numbers[0].number(),
           ": a flat array starts with -1 (parents) or with 1 or more (widths); name the form with --from"));
}

// An array of arrays.
Result<TreeFormat> detect_rows(const std::vector<Value>& outer) {
  std::vector<std::vector<Value>> rows;
  for (const Value row : outer) rows.push_back(row.items());
  const auto any = [&](auto&& holds) { return std::any_of(rows.begin(), rows.end(), holds); };
  const auto every = [&](auto&& holds) { return std::all_of(rows.begin(), rows.end(), holds); };

  // Every finite tree has a leaf, and only the successors form writes a leaf as an empty list.
  if (any([](const auto& row) { return row.empty(); })) return TreeFormat::successors;
  // -1 for "no link" or "no parent" stands in no other form. The rows of a retrieve pair may be nested, one a tree.
  const bool pair = rows.size() == 2 && any([](const auto& row) {
                      return row[0].is(Kind::array) ? std::any_of(row.begin(), row.end(), holds_minus_one)
                                                    : std::any_of(row.begin(), row.end(), is_minus_one);
                    });
  if (pair && rows[0][0].is(Kind::array)) return TreeFormat::retrieve;
  if (any([](const auto& row) { return row[0].is(Kind::array) || row[0].is(Kind::boolean); })) return TreeFormat::mask;
  if (every(starts_minus_one)) {
    if (rows.size() == 2 && rows[0].size() == 1 && rows[1].size() == 1) {
      return ambiguous("[[-1], [-1]]", "two parent arrays", "next_token and next_sibling of one node (retrieve)");
    }
    return TreeFormat::parents;
  }
  if (pair) return TreeFormat::retrieve;

  // A path of length T >= 2 needs its prefix, so T paths of length T are never choices: a square is a matrix.
  const bool square = every([&](const auto& row) { return row.size() == rows.size(); });
  if (square && rows.size() > 1) return TreeFormat::mask;
  if (square && rows[0][0].is(Kind::integer) && rows[0][0].number() == 1) {
    return ambiguous("[[1]]", "the mask of one node", "one path of choices");
  }
  return TreeFormat::choices;
}

}  // namespace

Result<TreeFormat> detect_array(Value array) {
  const std::vector<Value> items = array.items();
  if (items.empty()) {
    return ambiguous("empty", "choices of the root alone", "an empty tree in any other form");
  }
  if (all(items, Kind::string)) return TreeFormat::tuples;
  if (all(items, Kind::integer)) return detect_numbers(items);
  if (all(items, Kind::array)) return detect_rows(items);
  const auto odd = std::find_if(items.begin(), items.end(), [&](Value item) { return item.kind() != items[0].kind(); });
  const std::size_t index = odd == items.end() ? 0 : static_cast<std::size_t>(odd - items.begin());
  return Error::invalid(text("[", index, "]: expected integers, arrays or strings, all of one kind, found ",
                             items[index].describe(), index ? " after " + items[0].describe() : ""));
}

}  // namespace canopy::forms
