// One reader for each form that people write trees in (docs/trees.md). A reader takes the value and the label by which
// the reader of a message can find it ("choices", "trees[1]"), and gives checked parent arrays.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canopy/tree.hpp"
#include "tree/json.hpp"

namespace canopy::forms {

using Numbers = std::vector<std::int64_t>;  // as written: any 64-bit integer
using Parents = std::vector<std::int32_t>;
using Forest = std::vector<Parents>;  // one or more trees

Result<Forest> read_parents(json::Value value, const std::string& label);     // one array, or one for each tree
Result<Forest> read_choices(json::Value value, const std::string& label);     // child-rank paths
Result<Forest> read_tuples(json::Value value, const std::string& label);      // a Python string, or one for each tree
Result<Forest> read_successors(json::Value value, const std::string& label);  // child lists
Result<Forest> read_mask(json::Value value, const std::string& label);        // ancestor-or-self matrix, or several
Result<Forest> read_widths(json::Value value, const std::string& label);      // children of each node of a level
Result<Forest> read_retrieve(json::Value next_token, json::Value next_sibling, const std::string& prefix);

// Bare texts that are not JSON.
Result<Parents> parents_from_tuple_text(std::string_view source, const std::string& label);
Result<Numbers> read_plain_numbers(std::string_view source);  // separated by blanks or commas

// From numbers to a checked parent array.
Result<Parents> parents_from_numbers(const Numbers& numbers, const std::string& label);
Result<Parents> parents_from_paths(const std::vector<Numbers>& paths, const std::string& label);
Result<Parents> parents_from_widths(const Numbers& widths, const std::string& label);

// "label[i]", and an array of integers or the error that says which element is none; `what` names the elements.
std::string at(const std::string& label, std::size_t index);
Result<Numbers> read_integers(json::Value value, const std::string& label, const char* what);
// For parents that form a tree in the wrong order: an order that would do. "" where they form no tree.
std::string reorder_hint(const Numbers& parents);

}  // namespace canopy::forms
