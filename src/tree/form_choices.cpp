// Choices and tuples: a node is the path of child ranks that leads to it, the root is implied.
#include <algorithm>

#include "message.hpp"
#include "tree/check.hpp"
#include "tree/forms.hpp"
#include "tree/place.hpp"

namespace canopy::forms {
namespace {

std::string show(const Numbers& path) {
  constexpr std::size_t longest = 16;
  std::string out = "[";
  for (std::size_t i = 0; i < std::min(path.size(), longest); ++i) out += text(i ? ", " : "", path[i]);
  return out + (path.size() > longest ? ", ...]" : "]");
}

// A Python list or tuple of tuples of integers, as ast.literal_eval reads it.
class TupleReader {
 public:
  TupleReader(std::string_view source, const std::string& label) : source_(source), label_(label) {}

  Result<std::vector<Numbers>> read() {
    std::vector<Numbers> paths;
    char close = open();
    if (!close) return expected("a list of tuples such as [(0,), (0, 0)]");
    while (!take(close)) {
      Numbers path;
      const std::size_t start = next_;
      const char close_tuple = open();
      if (!close_tuple) return expected(text("a tuple or ", quote({&close, 1})));
      bool comma = false;
      while (!take(close_tuple)) {
        if (!integer(path)) return expected(text("an integer of at most 18 digits or ", quote({&close_tuple, 1})));
        comma = take(',');
        if (!comma && !peek(close_tuple)) return expected(text("\",\" or ", quote({&close_tuple, 1})));
      }
      if (close_tuple == ')' && path.size() == 1 && !comma) {
        return Error::invalid(text(label_, ": ", line_and_column(source_, start), ": in Python (", path[0],
                                   ") is an integer: write (", path[0], ",) for the tuple"));
      }
      paths.push_back(std::move(path));
      if (!take(',') && !peek(close)) return expected(text("\",\" or ", quote({&close, 1})));
    }
    blanks();
    if (next_ != source_.size()) return expected("nothing more");
    return paths;
  }

 private:
  void blanks() {
    while (next_ < source_.size() && std::string_view(" \t\r\n").find(source_[next_]) != std::string_view::npos)
      ++next_;
  }
  bool peek(char c) {
    blanks();
    return next_ < source_.size() && source_[next_] == c;
  }
  bool take(char c) {
    if (!peek(c)) return false;
    ++next_;
    return true;
  }
  char open() { return take('(') ? ')' : take('[') ? ']' : '\0'; }
  bool integer(Numbers& path) {
    blanks();
    std::size_t i = next_;
    const bool negative = i < source_.size() && source_[i] == '-';
    if (negative) ++i;
    const std::size_t digits = i;
    std::int64_t number = 0;
    for (; i < source_.size() && source_[i] >= '0' && source_[i] <= '9'; ++i) {
      if (i - digits == 18) return false;
      number = 10 * number + (source_[i] - '0');
    }
    if (i == digits) return false;
    path.push_back(negative ? -number : number);
    next_ = i;
    return true;
  }
  Error expected(const std::string& what) {
    blanks();
    return Error::invalid(
        text(label_, ": ", line_and_column(source_, next_), ": expected ", what, ", found ", found_at(source_, next_)));
  }

  std::string_view source_;
  const std::string& label_;
  std::size_t next_ = 0;
};

}  // namespace

Result<Parents> parents_from_paths(const std::vector<Numbers>& paths, const std::string& label) {
  if (paths.size() >= kMaxNodes) {
    return Error::invalid(text(label, " has ", paths.size(), " paths: expected at most ", kMaxNodes - 1,
                               ", since the implied root is a node too; draft fewer nodes"));
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].empty())
      return Error::invalid(at(label, i) + ": expected at least one child rank; the root is implied");
    for (std::size_t j = 0; j < paths[i].size(); ++j) {
      if (paths[i][j] < 0) {
        return Error::invalid(text(at(at(label, i), j), ": expected a child rank >= 0, found ", paths[i][j]));
      }
    }
  }
  // The numbering of the engines: the root is node 0, then by length, then by rank.
  std::vector<std::size_t> order(paths.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto before = [](const Numbers& a, const Numbers& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return before(paths[a], paths[b]) || (paths[a] == paths[b] && a < b);
  });
  Parents parents = {-1};
  for (std::size_t n = 0; n < order.size(); ++n) {
    const Numbers& path = paths[order[n]];
    if (n > 0 && path == paths[order[n - 1]]) {
      return Error::invalid(text(at(label, order[n]), " = ", show(path), " repeats ", at(label, order[n - 1]),
                                 ": expected each path once"));
    }
    if (path.size() == 1) {
      parents.push_back(0);
      continue;
    }
    const Numbers prefix(path.begin(), path.end() - 1);
    const auto found = std::lower_bound(order.begin(), order.end(), prefix,
                                        [&](std::size_t a, const Numbers& wanted) { return before(paths[a], wanted); });
    if (found == order.end() || paths[*found] != prefix) {
      return Error::invalid(text(at(label, order[n]), " = ", show(path), " needs its prefix ", show(prefix),
                                 ", which is not in the list: add it"));
    }
    parents.push_back(static_cast<std::int32_t>(found - order.begin()) + 1);
  }
  return parents;
}

Result<Parents> parents_from_tuple_text(std::string_view source, const std::string& label) {
  const Result<std::vector<Numbers>> paths = TupleReader(source, label).read();
  if (!paths) return paths.error();
  return parents_from_paths(*paths, label);
}

Result<Forest> read_choices(json::Value value, const std::string& label) {
  if (!value.is(json::Kind::array)) {
    return Error::invalid(text(label, ": expected an array of child-rank paths, found ", value.describe()));
  }
  std::vector<Numbers> paths;
  for (const json::Value item : value.items()) {
    Result<Numbers> path = read_integers(item, at(label, paths.size()), "child ranks");
    if (!path) return path.error();
    paths.push_back(std::move(*path));
  }
  Result<Parents> parents = parents_from_paths(paths, label);
  if (!parents) return parents.error();
  return Forest{std::move(*parents)};
}

Result<Forest> read_tuples(json::Value value, const std::string& label) {
  const bool several = value.is(json::Kind::array);
  const std::vector<json::Value> items = several ? value.items() : std::vector<json::Value>{value};
  if (items.empty()) return Error::invalid(label + " is empty: expected at least one string of tuples");
  Forest forest;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string place = several ? at(label, i) : label;
    if (!items[i].is(json::Kind::string)) {
      return Error::invalid(text(place, ": expected a string such as \"[(0,), (0, 0)]\", found ", items[i].describe()));
    }
    Result<Parents> parents = parents_from_tuple_text(items[i].text(), place);
    if (!parents) return parents.error();
    forest.push_back(std::move(*parents));
  }
  return forest;
}

}  // namespace canopy::forms
