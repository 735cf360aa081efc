#include "dispatch/file.hpp"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "message.hpp"
#include "registry.hpp"

namespace canopy::dispatch {
namespace {

constexpr std::string_view kFirstLine = "canopy dispatch 1", kArrow = " -> ";
constexpr int kMostTerms = 8;

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t')) line.remove_suffix(1);
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  return line;
}

// One "nodes <= 8" into the row; "" or what is wrong with it.
std::string read_term(std::string_view term, int device, Row& row) {
  const auto expected = [&] {
    return text("expected 'nodes <= N', 'nodes >= N', the same of heads or depth, 'precision NAME' or 'stash', got '",
                term, "'");
  };
  if (term == "stash") {
    if (device == CANOPY_CPU)
      return "expected 'stash' in a table of a GPU only, got it for cpu, where calls with a stash ask the rows of all "
             "others; leave the row out";
    return row.stash = true, std::string{};
  }
  if (term.substr(0, 10) == "precision ") {
    for (int i = 0; i <= CANOPY_PRECISION_FAST; ++i)
      if (term.substr(10) == kPrecisions[i]) return row.precision = i, std::string{};
    return text("expected precision default, fp32, precise, half or fast, got '", term.substr(10), "'");
  }
  const bool nodes = term.substr(0, 6) == "nodes ", heads = term.substr(0, 6) == "heads ",
             depth = term.substr(0, 6) == "depth ";
  const bool most = term.substr(6, 3) == "<= ", least = term.substr(6, 3) == ">= ";
  if (term.size() < 10 || !(nodes || heads || depth) || !(most || least)) return expected();
  const std::string_view digits = term.substr(9);
  int value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (code != std::errc{} || end != digits.data() + digits.size() || value < 0) return expected();
  if (nodes)
    (most ? row.max_nodes : row.min_nodes) = value;
  else if (heads)
    (most ? row.max_heads : row.min_heads) = value;
  else
    (most ? row.max_depth : row.min_depth) = value;
  return {};
}

// The registry's own copy of a name, which outlives the file.
std::string read_implementation(std::string_view name, int device, Row& row) {
  std::string names;
  for (const auto& entry : verify_implementations()) {
    if (entry.device != device) continue;
    if (name == entry.name) return row.implementation = entry.name, std::string{};
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  if (names.empty()) return {};  // a build without this device: the row can never be asked
  return text("expected one of ", names, ", got '", name, "'; run canopy tune again with this version");
}

std::string read_row(std::string_view line, int device, Row& row) {
  const std::size_t arrow = line.find(kArrow);
  if (arrow == std::string_view::npos) return text("expected 'CONDITION -> IMPLEMENTATION', got '", line, "'");
  std::string_view conditions = trimmed(line.substr(0, arrow));
  int terms = 0;
  while (conditions != "always") {
    const std::size_t end = conditions.find(" and ");
    if (++terms > kMostTerms) return "expected at most eight conditions, got more; leave some out";
    if (std::string why = read_term(trimmed(conditions.substr(0, end)), device, row); !why.empty()) return why;
    if (end == std::string_view::npos) break;
    conditions = trimmed(conditions.substr(end + 5));
  }
  return read_implementation(trimmed(line.substr(arrow + kArrow.size())), device, row);
}

bool always(const Row& row) { return condition(row) == "always"; }

Result<std::string> read_file(const char* path) {
  std::FILE* const file = std::fopen(path, "rb");
  if (!file)
    return Error::invalid(text("CANOPY_DISPATCH = ", path, ": cannot open: ", std::strerror(errno),
                               "; expected a file that canopy tune wrote, or the variable unset"));
  std::string text;
  char buffer[4096];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, got);
  std::fclose(file);
  return text;
}

Result<Tables> read_own() {
  const char* const path = std::getenv("CANOPY_DISPATCH");
  if (!path || !*path) return Tables{};
  auto text = read_file(path);
  if (!text) return text.error();
  return parse_tables(*text, path);
}

}  // namespace

const FileTable* Tables::find(int device) const {
  for (const FileTable& table : tables)
    if (table.device == device && table.machine == machine(device).name) return &table;
  return nullptr;
}

Result<Tables> parse_tables(std::string_view source, std::string_view file) {
  Tables all;
  int number = 0;
  bool begun = false;
  const auto wrong = [&](const std::string& why) { return Error::invalid(text(file, ":", number, ": ", why)); };
  const auto unfinished = [&]() -> std::string {
    if (all.tables.empty()) return {};
    const FileTable& last = all.tables.back();
    if (!last.rows.empty() && always(last.rows.back())) return {};
    return text("the table of ", last.machine, " ends without a row 'always -> IMPLEMENTATION'");
  };
  while (!source.empty()) {
    const std::size_t end = source.find('\n');
    const std::string_view line = trimmed(source.substr(0, end));
    source.remove_prefix(end == std::string_view::npos ? source.size() : end + 1);
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (!begun) {
      if (line != kFirstLine)
        return wrong(text("expected '", kFirstLine, "', got '", line, "'; canopy tune writes such files"));
      begun = true;
      continue;
    }
    const bool cpu = line.substr(0, 9) == "for cpu: ", cuda = line.substr(0, 10) == "for cuda: ";
    if (cpu || cuda) {
      if (const std::string why = unfinished(); !why.empty()) return wrong(why);
      FileTable table;
      table.device = cpu ? CANOPY_CPU : CANOPY_CUDA;
      table.machine = trimmed(line.substr(cpu ? 9 : 10));
      table.title = text(file, ", table of ", table.machine);
      all.tables.push_back(std::move(table));
      continue;
    }
    if (all.tables.empty()) return wrong(text("expected 'for cpu: NAME' or 'for cuda: NAME', got '", line, "'"));
    Row row;
    if (const std::string why = read_row(line, all.tables.back().device, row); !why.empty()) return wrong(why);
    all.tables.back().rows.push_back(row);
  }
  if (!begun) return wrong(text("expected '", kFirstLine, "', found nothing; canopy tune writes such files"));
  if (const std::string why = unfinished(); !why.empty()) return wrong(why);
  if (all.tables.empty()) return wrong("expected a line 'for cpu: NAME' or 'for cuda: NAME' and rows below it");
  return all;
}

std::string format_table(const FileTable& table, std::string_view comment) {
  std::string out = text(kFirstLine, "\n");
  while (!comment.empty()) {
    const std::size_t end = comment.find('\n');
    out += text("# ", comment.substr(0, end), "\n");
    comment.remove_prefix(end == std::string_view::npos ? comment.size() : end + 1);
  }
  out += text("for ", table.device == CANOPY_CPU ? "cpu" : "cuda", ": ", table.machine, "\n");
  for (const Row& row : table.rows) out += text(condition(row), kArrow, row.implementation, "\n");
  return out;
}

const Result<Tables>& own_tables() {
  static const Result<Tables> tables = read_own();
  return tables;
}

}  // namespace canopy::dispatch
