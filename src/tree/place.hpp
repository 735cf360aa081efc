// Where in a text something stands and what stands there, for error messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace canopy {

// "line 3, column 7", counted from 1 in bytes.
inline std::string line_and_column(std::string_view source, std::size_t offset) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const std::size_t line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0
  return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - line_start + 1);
}

// At most 40 bytes in double quotes, other than printable ASCII as \xNN: safe on any terminal.
inline std::string quote(std::string_view piece) {
  constexpr std::size_t longest = 40;
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : piece.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return out + (piece.size() > longest ? "...\"" : "\"");
}

// What stands at `offset`: one character, or "the end".
inline std::string found_at(std::string_view source, std::size_t offset) {
  return offset < source.size() ? quote(source.substr(offset, 1)) : "the end of the text";
}

}  // namespace canopy
