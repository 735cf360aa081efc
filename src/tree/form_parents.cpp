// The parents form, and what the readers share.
#include <algorithm>

#include "message.hpp"
#include "tree/check.hpp"
#include "tree/forms.hpp"
#include "tree/place.hpp"

namespace canopy::forms {

std::string at(const std::string& label, std::size_t index) { return text(label, "[", index, "]"); }

Result<Numbers> read_integers(json::Value value, const std::string& label, const char* what) {
  if (!value.is(json::Kind::array)) {
    return Error::invalid(text(label, ": expected an array of ", what, ", found ", value.describe()));
  }
  Numbers numbers;
  for (const json::Value item : value.items()) {
    if (!item.is(json::Kind::integer)) {
      return Error::invalid(
          text(at(label, numbers.size()), ": expected an integer (", what, "), found ", item.describe()));
    }
    numbers.push_back(item.number());
  }
  return numbers;
}

std::string reorder_hint(const Numbers& parents) {
  const auto nodes = static_cast<std::int64_t>(parents.size());
  std::vector<std::vector<std::int64_t>> children(parents.size());
  std::int64_t root = -1;
  for (std::int64_t i = 0; i < nodes; ++i) {
    if (parents[i] == -1 && root < 0) {
      root = i;
    } else if (parents[i] >= 0 && parents[i] < nodes) {
      children[parents[i]].push_back(i);
    } else {
      return "";
    }
  }
  if (root < 0) return "";
  std::vector<std::int64_t> order = {root}, label(parents.size(), -1);  // breadth-first
  for (std::size_t next = 0; next < order.size(); ++next) {
    label[order[next]] = static_cast<std::int64_t>(next);
    order.insert(order.end(), children[order[next]].begin(), children[order[next]].end());
  }
  if (order.size() != parents.size()) return "";  // a circle beside the root's tree
  std::string hint = "; renumber the nodes level by level: the same tree is the parent array [-1";
  for (std::size_t next = 1; next < order.size(); ++next) hint += text(", ", label[parents[order[next]]]);
  return hint + "]";
}

Result<Parents> parents_from_numbers(const Numbers& numbers, const std::string& label) {
  if (Error error = parents_error(std::span<const std::int64_t>(numbers), label); !error.ok()) {
    if (numbers.size() <= kMaxNodes) error.message += reorder_hint(numbers);
    return error;
  }
  return Parents(numbers.begin(), numbers.end());
}

Result<Forest> read_parents(json::Value value, const std::string& label) {
  const std::vector<json::Value> rows = value.is(json::Kind::array) ? value.items() : std::vector<json::Value>{};
  const bool several = !rows.empty() && rows[0].is(json::Kind::array);
  Forest forest;
  for (std::size_t row = 0; row < (several ? rows.size() : 1); ++row) {
    const std::string place = several ? at(label, row) : label;
    const Result<Numbers> numbers = read_integers(several ? rows[row] : value, place, "parents");
    if (!numbers) return numbers.error();
    Result<Parents> parents = parents_from_numbers(*numbers, place);
    if (!parents) return parents.error();
    forest.push_back(std::move(*parents));
  }
  return forest;
}

Result<Numbers> read_plain_numbers(std::string_view source) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  Numbers numbers;
  std::size_t i = 0;
  bool after_comma = false;
  for (;;) {
    while (i < source.size() && blank(source[i])) ++i;
    if (i == source.size() && !after_comma) return numbers;
    const std::size_t start = i;
    const bool negative = i < source.size() && source[i] == '-';
    if (negative) ++i;
    const std::size_t digits = i;
    std::int64_t number = 0;
    // Eighteen digits always fit.
    for (; i < source.size() && source[i] >= '0' && source[i] <= '9' && i - digits < 18; ++i) {
      number = 10 * number + (source[i] - '0');
    }
    const bool ends = i == source.size() || blank(source[i]) || source[i] == ',';
    if (i == digits || !ends) {
      const std::size_t end = std::min(source.find_first_of(" \t\r\n,", start), source.size());
      return Error::invalid(text(line_and_column(source, start), ": expected an integer, found ",
                                 end > start ? quote(source.substr(start, end - start)) : found_at(source, start)));
    }
    numbers.push_back(negative ? -number : number);
    while (i < source.size() && blank(source[i])) ++i;
    after_comma = i < source.size() && source[i] == ',';
    if (after_comma) ++i;
  }
}

}  // namespace canopy::forms
