// Successors and retrieve: trees as links from parents to children.
#include "canopy/plan.hpp"
#include "message.hpp"
#include "tree/check.hpp"
#include "tree/forms.hpp"

namespace canopy::forms {
namespace {

// The words for what parents_from_links refuses.
Error link_error(const Numbers& next_token, const Numbers& next_sibling, const std::string& token_label,
                 const std::string& sibling_label) {
  const auto nodes = static_cast<std::int64_t>(next_token.size());
  if (next_sibling[0] != -1) {
    return Error::invalid(text(at(sibling_label, 0), " = ", next_sibling[0], ": expected -1, the root has no sibling"));
  }
  std::vector<std::string> linked(next_token.size());  // the link that leads to a node
  for (std::int64_t i = 0; i < nodes; ++i) {
    for (const bool sibling : {false, true}) {
      const std::int64_t to = sibling ? next_sibling[i] : next_token[i];
      if (to == -1) continue;
      const std::string place = at(sibling ? sibling_label : token_label, i);
      if (to < -1 || to >= nodes) {
        return Error::invalid(text(place, " = ", to, ": expected -1 (none) or a node 1..", nodes - 1));
      }
      if (to == 0) return Error::invalid(text(place, " = 0: node 0 is the root, no link leads to it"));
      if (!linked[to].empty()) {
        return Error::invalid(text(place, " = ", to, ": node ", to, " is already linked by ", linked[to]));
      }
      linked[to] = place;
    }
  }
  Numbers parents(next_token.size(), -1);
  for (std::int64_t i = 0; i < nodes; ++i) {
    for (std::int64_t child = next_token[i]; child != -1; child = next_sibling[child]) parents[child] = i;
  }
  std::vector<bool> reached(next_token.size(), false);
  Numbers open = {0};
  while (!open.empty()) {
    const std::int64_t node = open.back();
    open.pop_back();
    reached[node] = true;
    for (std::int64_t child = next_token[node]; child != -1; child = next_sibling[child]) open.push_back(child);
  }
  for (std::int64_t i = 1; i < nodes; ++i) {
    if (reached[i]) continue;
    const bool padding = linked[i].empty() && next_token[i] == -1 && next_sibling[i] == -1;
    return Error::invalid(text(token_label, ", ", sibling_label, ": node ", i, " is not reached from the root",
                               padding ? "; cut padding off, a row holds live nodes only"
                               : linked[i].empty()
                                   ? ""
                                   : text(" (", linked[i], " leads to it, in a circle or from such a node)")));
  }
  for (std::int64_t i = 1; i < nodes; ++i) {
    if (parents[i] < i) continue;
    return Error::invalid(text(linked[i], " = ", i, ": node ", i, " hangs under node ", parents[i],
                               ", and a parent must precede its child", reorder_hint(parents)));
  }
  return Error::invalid(text(token_label, ", ", sibling_label, ": not a tree"));
}

Result<Parents> parents_from_rows(json::Value next_token, json::Value next_sibling, const std::string& token_label,
                                  const std::string& sibling_label) {
  const Result<Numbers> tokens = read_integers(next_token, token_label, "first children, -1 for none");
  if (!tokens) return tokens.error();
  const Result<Numbers> siblings = read_integers(next_sibling, sibling_label, "next siblings, -1 for none");
  if (!siblings) return siblings.error();
  if (Error error = node_count_error(tokens->size(), token_label); !error.ok()) return error;
  if (tokens->size() != siblings->size()) {
    return Error::invalid(text(token_label, " has ", tokens->size(), " entries and ", sibling_label, " ",
                               siblings->size(), ": expected one of each for every node"));
  }
  Parents narrow[2];
  for (const Numbers* wide : {&*tokens, &*siblings}) {
    for (const std::int64_t to : *wide) {
      if (to < -1 || to >= kMaxNodes) return link_error(*tokens, *siblings, token_label, sibling_label);
      narrow[wide == &*siblings].push_back(static_cast<std::int32_t>(to));
    }
  }
  Parents parents(tokens->size());
  if (!parents_from_links(narrow[0].data(), narrow[1].data(), static_cast<int>(parents.size()), parents.data())) {
    return link_error(*tokens, *siblings, token_label, sibling_label);
  }
  return parents;
}

}  // namespace

Result<Forest> read_retrieve(json::Value next_token, json::Value next_sibling, const std::string& prefix) {
  const std::string token_label = prefix + "next_token", sibling_label = prefix + "next_sibling";
  for (const auto& [value, label] : {std::pair(next_token, token_label), std::pair(next_sibling, sibling_label)}) {
    if (!value.is(json::Kind::array)) {
      return Error::invalid(
          text(label, ": expected an array of links, or one for each tree, found ", value.describe()));
    }
  }
  const std::vector<json::Value> tokens = next_token.items(), siblings = next_sibling.items();
  if (tokens.empty()) return Error::invalid(token_label + " is empty: expected at least one tree");
  Forest forest;
  if (!tokens[0].is(json::Kind::array)) {
    Result<Parents> parents = parents_from_rows(next_token, next_sibling, token_label, sibling_label);
    if (!parents) return parents.error();
    forest.push_back(std::move(*parents));
    return forest;
  }
  if (tokens.size() != siblings.size()) {
    return Error::invalid(text(token_label, " has ", tokens.size(), " rows and ", sibling_label, " ", siblings.size(),
                               ": expected one of each for every tree"));
  }
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    Result<Parents> parents =
        parents_from_rows(tokens[row], siblings[row], at(token_label, row), at(sibling_label, row));
    if (!parents) return parents.error();
    forest.push_back(std::move(*parents));
  }
  return forest;
}

Result<Forest> read_successors(json::Value value, const std::string& label) {
  if (!value.is(json::Kind::array)) {
    return Error::invalid(
        text(label, ": expected an array with the child list of every node, found ", value.describe()));
  }
  const std::vector<json::Value> lists = value.items();
  if (Error error = node_count_error(lists.size(), label); !error.ok()) return error;
  const auto nodes = static_cast<std::int64_t>(lists.size());
  Numbers parents(lists.size(), -1);
  std::vector<std::string> linked(lists.size());
  for (std::int64_t i = 0; i < nodes; ++i) {
    const Result<Numbers> children = read_integers(lists[i], at(label, i), "children");
    if (!children) return children.error();
    for (std::size_t j = 0; j < children->size(); ++j) {
      const std::int64_t child = (*children)[j];
      const std::string place = text(at(at(label, i), j), " = ", child, ": ");
      if (child == 0) return Error::invalid(place + "node 0 is the root, nobody's child");
      if (child < 0 || child >= nodes) {
        return Error::invalid(text(place, "expected a node 1..", nodes - 1, " (there are ", nodes, " child lists)"));
      }
      if (!linked[child].empty()) return Error::invalid(text(place, "node ", child, " is already ", linked[child]));
      parents[child] = i;
      linked[child] = at(at(label, i), j);
    }
  }
  for (std::int64_t i = 1; i < nodes; ++i) {
    if (linked[i].empty()) return Error::invalid(text(label, ": node ", i, " is in no child list"));
    if (parents[i] >= i) {
      return Error::invalid(text(linked[i], " = ", i, ": node ", i, " hangs under node ", parents[i],
                                 ", and a parent must precede its child", reorder_hint(parents)));
    }
  }
  return Forest{Parents(parents.begin(), parents.end())};
}

}  // namespace canopy::forms
