// Text to trees: names of the forms, wrapped objects, bare texts (docs/trees.md).
#include <algorithm>

#include "message.hpp"
#include "tree/detect.hpp"
#include "tree/forms.hpp"
#include "tree/place.hpp"

namespace canopy {
namespace {

using forms::Forest;
using json::Kind;
using json::Value;

constexpr std::size_t kMaxBytes = std::size_t{4} << 20;  // hundreds of trees of 256 nodes in any form but the mask

struct Form {
  TreeFormat format;
  const char* name;
  const char* key;  // the member of a wrapped object that holds it
  Result<Forest> (*read)(Value, const std::string& label);
};
constexpr Form kForms[] = {
    {TreeFormat::parents, "parents", "parents", forms::read_parents},
    {TreeFormat::choices, "choices", "choices", forms::read_choices},
    {TreeFormat::tuples, "tuples", "trees", forms::read_tuples},
    {TreeFormat::retrieve, "retrieve", "next_token", nullptr},  // two members, read by hand
    {TreeFormat::successors, "successors", "successors", forms::read_successors},
    {TreeFormat::mask, "mask", "mask", forms::read_mask},
    {TreeFormat::widths, "widths", "widths", forms::read_widths},
};
const Form& form_of(TreeFormat format) {
  return *std::find_if(std::begin(kForms), std::end(kForms), [&](const Form& form) { return form.format == format; });
}

struct Read {
  TreeFormat format;
  Forest forest;
};
Result<Read> read_as(TreeFormat format, Result<Forest> forest) {
  if (!forest) return forest.error();
  return Read{format, std::move(*forest)};
}

Result<Read> read_object(Value object, TreeFormat wanted, const std::string& where);

// The objects of {"trees": [{..}, {..}]}.
Result<Read> read_list(const std::vector<Value>& items, TreeFormat wanted, const std::string& where) {
  Read all{wanted, {}};
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string place = text(where, "trees[", i, "]");
    if (!items[i].is(Kind::object)) {
      return Error::invalid(text(place, ": expected an object like the first, found ", items[i].describe()));
    }
    Result<Read> one = read_object(items[i], wanted, place + ".");
    if (!one) return one;
    if (i > 0 && one->format != all.format) {
      return Error::invalid(text(place, " is in the form ", name_of(one->format), ", the ones before in ",
                                 name_of(all.format), ": expected one form in a text"));
    }
    all.format = one->format;
    for (auto& parents : one->forest) all.forest.push_back(std::move(parents));
  }
  return all;
}

// {"source": .., "format": .., "choices": ..}; `where` is "" or "trees[2].".
Result<Read> read_object(Value object, TreeFormat wanted, const std::string& where) {
  const auto members = object.members();
  const auto find = [&](std::string_view key) {
    return std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == key; });
  };
  std::string names;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (find(members[i].first) - members.begin() != static_cast<std::ptrdiff_t>(i)) {
      return Error::invalid(text(where, "member ", quote(members[i].first), " appears twice: expected it once"));
    }
    if (i < 16) names += text(i ? ", " : "", quote(members[i].first));
  }

  if (const auto named = find("format"); named != members.end()) {
    if (!named->second.is(Kind::string)) {
      return Error::invalid(text(where, "format: expected the name of a form, found ", named->second.describe()));
    }
    const Result<TreeFormat> format = tree_format_from_name(named->second.text());
    if (!format) return Error::invalid(text(where, "format: ", format.error().message));
    if (wanted != TreeFormat::detect && *format != TreeFormat::detect && wanted != *format) {
      return Error::invalid(text(where, "format: the text says ", name_of(*format), ", the caller asked for ",
                                 name_of(wanted), ": drop one of the two"));
    }
    if (wanted == TreeFormat::detect) wanted = *format;
  }

  const TreeFormat asked = wanted;
  if (wanted == TreeFormat::detect) {
    for (const Form& form : kForms) {
      if (find(form.key) == members.end()) continue;
      if (wanted != TreeFormat::detect) {
        return Error::invalid(text(where, "members ", quote(form_of(wanted).key), " and ", quote(form.key),
                                   " are both trees: name the form with --from or a \"format\" member"));
      }
      wanted = form.format;
    }
    if (wanted == TreeFormat::detect) {
      return Error::invalid(text(where.empty() ? "object" : where.substr(0, where.size() - 1),
                                 ": expected a member parents, choices, trees (tuples), next_token and next_sibling "
                                 "(retrieve), successors, mask or widths, found ",
                                 names.empty() ? "none" : names));
    }
  }
  // {"trees": [{..}, {..}]}: a wrapped object for each tree, as the program writes several.
  const auto list = find("trees");
  const std::vector<Value> items =
      list != members.end() && list->second.is(Kind::array) ? list->second.items() : std::vector<Value>{};
  const bool own =
      asked != TreeFormat::detect && asked != TreeFormat::tuples && find(form_of(asked).key) != members.end();
  if (!own && !items.empty() && items[0].is(Kind::object)) return read_list(items, asked, where);
  const Form& form = form_of(wanted);
  const auto payload = find(form.key);
  const auto sibling = find("next_sibling");
  const bool retrieve = wanted == TreeFormat::retrieve;
  if (payload == members.end() || (retrieve && sibling == members.end())) {
    return Error::invalid(text(where.empty() ? "object" : where.substr(0, where.size() - 1), ": expected ",
                               retrieve ? "members next_token and next_sibling" : text("a member ", form.key),
                               " (form ", form.name, "), found ", names.empty() ? "none" : names));
  }
  if (retrieve) return read_as(wanted, forms::read_retrieve(payload->second, sibling->second, where));
  return read_as(wanted, form.read(payload->second, where + form.key));
}

Result<Read> read_array(Value array, TreeFormat wanted) {
  if (wanted == TreeFormat::detect) {
    const Result<TreeFormat> detected = forms::detect_array(array);
    if (!detected) return detected.error();
    wanted = *detected;
  }
  if (wanted != TreeFormat::retrieve) return read_as(wanted, form_of(wanted).read(array, name_of(wanted).data()));
  const std::vector<Value> pair = array.items();
  if (pair.size() != 2) {
    return Error::invalid(text("retrieve: expected [next_token, next_sibling], found ", array.describe()));
  }
  return read_as(wanted, forms::read_retrieve(pair[0], pair[1], ""));
}

Result<Read> one_tree(TreeFormat format, Result<forms::Parents> parents) {
  if (!parents) return parents.error();
  return Read{format, {std::move(*parents)}};
}

// "-1 0 0 1", or the inside of <1,1,3>.
Result<Read> read_plain(std::string_view source, TreeFormat wanted, bool angle) {
  if (angle && wanted == TreeFormat::detect) wanted = TreeFormat::widths;
  if (wanted != TreeFormat::detect && wanted != TreeFormat::widths && (angle || wanted != TreeFormat::parents)) {
    return Error::invalid(text(angle ? "<..> holds widths" : "a plain list of numbers holds parents or widths",
                               ", not ", name_of(wanted)));
  }
  const Result<forms::Numbers> numbers = forms::read_plain_numbers(source);
  if (!numbers) return numbers.error();
  if (wanted == TreeFormat::widths) return one_tree(wanted, forms::parents_from_widths(*numbers, "widths"));
  if (wanted == TreeFormat::detect && (*numbers)[0] != -1) {
    return Error::invalid(text("a plain list of numbers is a parent array and starts with -1, found ", (*numbers)[0],
                               "; write widths as <1,1,3> or name the form with --from"));
  }
  return one_tree(TreeFormat::parents, forms::parents_from_numbers(*numbers, "parents"));
}

Result<Read> read(std::string_view source, TreeFormat wanted) {
  constexpr std::string_view blanks = " \t\r\n";
  if (source.size() > kMaxBytes) {
    return Error::invalid(text("the text has ", source.size(), " bytes: expected at most ", kMaxBytes));
  }
  // Offsets in messages count from the start of the text, so leading blanks stay; a byte order mark is no content.
  if (source.substr(0, 3) == "\xEF\xBB\xBF") source.remove_prefix(3);
  const std::size_t first = source.find_first_not_of(blanks);
  if (first == source.npos) return Error::invalid("the text is empty: expected a tree");
  source = source.substr(0, source.find_last_not_of(blanks) + 1);
  const std::size_t second = source.find_first_not_of(blanks, first + 1);
  const char c = source[first];

  if (c == '-' || (c >= '0' && c <= '9')) return read_plain(source, wanted, false);
  if (c == '<') {
    if (source.back() != '>') {
      return Error::invalid(text(line_and_column(source, source.size()), ": expected \">\" after the widths"));
    }
    // A blank in place of each bracket keeps line and column right.
    std::string inside(source);
    inside[first] = inside.back() = ' ';
    return read_plain(inside, wanted, true);
  }
  const bool tuples = c == '(' || (c == '[' && second != source.npos && source[second] == '(');
  if (tuples) {
    if (wanted != TreeFormat::detect && wanted != TreeFormat::tuples) {
      return Error::invalid(text("the text is a Python list of tuples, not ", name_of(wanted)));
    }
    return one_tree(TreeFormat::tuples, forms::parents_from_tuple_text(source, "tuples"));
  }
  if (c != '{' && c != '[' && c != '"') {
    return Error::invalid(text(line_and_column(source, first),
                               ": expected a tree (JSON, a list of tuples, <widths> or a list of parents), found ",
                               found_at(source, first)));
  }
  const Result<json::Document> document = json::parse(source);
  if (!document) return document.error();
  const Value root(*document);
  if (root.is(Kind::object)) return read_object(root, wanted, "");
  if (root.is(Kind::array)) return read_array(root, wanted);
  if (wanted != TreeFormat::detect && wanted != TreeFormat::tuples) {
    return Error::invalid(text("the text is a string, which holds tuples, not ", name_of(wanted)));
  }
  return read_as(TreeFormat::tuples, forms::read_tuples(root, "tuples"));
}

}  // namespace

Result<TreeFormat> tree_format_from_name(std::string_view name) {
  if (name == "detect") return TreeFormat::detect;
  std::string known;
  for (const Form& form : kForms) {
    if (name == form.name) return form.format;
    known += text(known.empty() ? "" : ", ", form.name);
  }
  return Error::invalid(text("the form ", quote(name), " is unknown: expected one of ", known, " or detect"));
}

std::string_view name_of(TreeFormat format) { return format == TreeFormat::detect ? "detect" : form_of(format).name; }

Result<ParsedTrees> parse_trees(std::string_view source, TreeFormat format, std::string_view origin) {
  const Result<Read> trees = read(source, format);
  if (!trees) return Error::invalid(text(origin, ": ", trees.error().message));
  ParsedTrees parsed{trees->format, {}};
  for (const forms::Parents& parents : trees->forest) {
    Result<Tree> tree = Tree::from_parents(parents);
    if (!tree) return Error::invalid(text(origin, ": ", tree.error().message));
    parsed.trees.push_back(std::move(*tree));
  }
  return parsed;
}

}  // namespace canopy
