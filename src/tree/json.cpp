#include "tree/json.hpp"

#include <nlohmann/json.hpp>

#include "message.hpp"
#include "tree/place.hpp"

namespace canopy::json {
namespace {

constexpr std::size_t kMaxNesting = 16;  // the deepest form, a list of objects with several masks, nests 6

// nlohmann-json's lexer calls these; returning false ends the parse.
class Builder {
 public:
  explicit Builder(std::string_view source) : source_(source) {}

  bool null() { return add(Kind::null, 0); }
  bool boolean(bool value) { return add(Kind::boolean, value); }
  bool number_integer(std::int64_t value) { return add(Kind::integer, value); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= INT64_MAX) return add(Kind::integer, static_cast<std::int64_t>(value));
    return add_text(Kind::real, std::to_string(value));
  }
  bool number_float(double, const std::string& written) { return add_text(Kind::real, written); }
  bool string(const std::string& value) { return add_text(Kind::string, value); }
  bool binary(const std::vector<std::uint8_t>&) { return false; }  // not in JSON text
  bool key(const std::string& value) { return add_text(Kind::string, value); }
  bool start_array(std::size_t) { return open(Kind::array); }
  bool start_object(std::size_t) { return open(Kind::object); }
  bool end_array() { return close(); }
  bool end_object() { return close(); }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string& last_token, const Exception& exception) {
    // what(): "[ID] parse error at ..: syntax error while parsing CONTEXT - REASON; last read: 'TOKEN'; expected WHAT",
    // the last two parts not always. TOKEN is input, megabytes of it perhaps: it is cut out before anything is read.
    std::string what = exception.what();
    constexpr std::string_view before_token = "; last read: '", context = "while parsing ", wanted = "; expected ";
    const std::size_t token = what.find(before_token);
    if (token != what.npos) what.erase(token, before_token.size() + last_token.size() + 1);
    const std::size_t offset = position == 0 ? 0 : position - 1;
    const std::size_t start = what.find(context), dash = what.find(" - ", start), expected = what.rfind(wanted);
    std::string reason = "JSON";
    if (what.find("out_of_range") != what.npos) {
      reason = "a number of at most 64 bits";
    } else if (expected != what.npos) {
      reason = what.substr(expected + wanted.size());
    } else if (dash != what.npos) {
      reason = canopy::text("a JSON ", what.substr(start + context.size(), dash - start - context.size()), " (",
                            what.substr(dash + 3), ")");
    }
    // The token of an invalid literal or string starts anywhere before its error.
    const bool whole_token = token == what.npos && offset < source_.size();
    error_ = Error::invalid(canopy::text(line_and_column(source_, offset), ": expected ", reason, ", found ",
                                         whole_token ? quote(last_token) : found_at(source_, offset)));
    return false;
  }

  Result<Document> finish() {
    if (!error_.ok()) return error_;
    return std::move(document_);
  }

 private:
  bool add(Kind kind, std::int64_t number) {
    document_.entries.push_back({kind, static_cast<std::uint32_t>(document_.entries.size()) + 1, number});
    return true;
  }
  bool add_text(Kind kind, std::string written) {
    document_.texts.push_back(std::move(written));
    return add(kind, static_cast<std::int64_t>(document_.texts.size()) - 1);
  }
  bool open(Kind kind) {
    if (open_.size() == kMaxNesting) {
      error_ = Error::invalid(
          canopy::text("nested too deep: expected at most ", kMaxNesting, " levels of arrays and objects"));
      return false;
    }
    open_.push_back(static_cast<std::uint32_t>(document_.entries.size()));
    return add(kind, 0);
  }
  bool close() {
    document_.entries[open_.back()].end = static_cast<std::uint32_t>(document_.entries.size());
    open_.pop_back();
    return true;
  }

  std::string_view source_;
  Document document_;
  std::vector<std::uint32_t> open_;  // containers not yet closed
  Error error_;
};

}  // namespace

std::vector<Value> Value::items() const {
  std::vector<Value> items;
  for (std::uint32_t at = at_ + 1; at < entry().end; at = document_->entries[at].end)
    items.emplace_back(*document_, at);
  return items;
}

std::vector<std::pair<std::string, Value>> Value::members() const {
  std::vector<std::pair<std::string, Value>> members;
  const std::vector<Value> flat = items();  // key, value, key, value ..
  for (std::size_t i = 0; i + 1 < flat.size(); i += 2) members.emplace_back(flat[i].text(), flat[i + 1]);
  return members;
}

std::string Value::describe() const {
  switch (kind()) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return number() ? "true" : "false";
    case Kind::integer:
      return std::to_string(number());
    case Kind::real:
      return text().substr(0, 40);
    case Kind::string:
      return quote(text());
    case Kind::array:
      return canopy::text("an array of ", items().size());
    case Kind::object:
      break;
  }
  return "an object";
}

Result<Document> parse(std::string_view source) {
  Builder builder(source);
  nlohmann::json::sax_parse(source.begin(), source.end(), &builder);
  return builder.finish();
}

}  // namespace canopy::json
