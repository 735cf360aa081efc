// JSON as a flat array of values, read without exceptions and without recursion: nested input of any depth, numbers of
// any size and bytes of any kind give an error with line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canopy/result.hpp"

namespace canopy::json {

enum class Kind : std::uint8_t { null, boolean, integer, real, string, array, object };

// In document order: a container stands before its members, `end` is the index past its last descendant.
struct Entry {
  Kind kind = Kind::null;
  std::uint32_t end = 0;
  std::int64_t number = 0;  // boolean 0 or 1; integer; string and real: index into Document::texts
};

struct Document {
  std::vector<Entry> entries;
  std::vector<std::string> texts;  // strings, and numbers that are no 64-bit integer as they were written
};

// A place in a document. Cheap to copy; the document must outlive it.
class Value {
 public:
  Value(const Document& document, std::uint32_t at = 0) : document_(&document), at_(at) {}

  Kind kind() const { return entry().kind; }
  bool is(Kind kind) const { return entry().kind == kind; }
  std::int64_t number() const { return entry().number; }                        // of a boolean or an integer
  const std::string& text() const { return document_->texts[entry().number]; }  // of a string
  std::vector<Value> items() const;                                             // of an array
  std::vector<std::pair<std::string, Value>> members() const;                   // of an object, in file order
  std::string describe() const;  // "an array of 3", "1.5", "\"abc\"": what was found

 private:
  const Entry& entry() const { return document_->entries[at_]; }
  const Document* document_;
  std::uint32_t at_;
};

// The whole of `source` as one value. The message starts "line L, column C: ".
Result<Document> parse(std::string_view source);

}  // namespace canopy::json
