// Dispatch tables as text: what `canopy tune` writes and CANOPY_DISPATCH names.
//
//   canopy dispatch 1
//   for cuda: NVIDIA H200
//   stash and nodes <= 16 -> cuda_serial_resident
//   nodes <= 8 and heads <= 32 -> cuda_serial_resident
//   nodes >= 200 and depth >= 128 -> cuda_split
//   always -> cuda_fused
//
// A row with a depth is passed over where the caller names none, a row with a stash where no u is stored. Blank lines
// and lines that begin with # are left out. Several machines' tables may stand in one file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "canopy/result.hpp"
#include "dispatch/table.hpp"

namespace canopy::dispatch {

inline constexpr const char* kPrecisions[] = {"default", "fp32", "precise", "half", "fast"};

struct FileTable {
  int device = CANOPY_CPU;
  std::string machine;  // its name
  std::string title;    // "FILE, table of NVIDIA H200"
  std::vector<Row> rows;
};

struct Tables {
  std::vector<FileTable> tables;
  // The table of this machine, nullptr if there is none.
  const FileTable* find(int device) const;
};

// Errors: "FILE:LINE: what was expected, what came, the remedy". Implementations must be registered for their device
// where this build has any for it; a table ends with a row that always holds.
Result<Tables> parse_tables(std::string_view text, std::string_view file);
std::string format_table(const FileTable& table, std::string_view comment);

// The tables of the file that CANOPY_DISPATCH names, read once; none when it is not set.
const Result<Tables>& own_tables();

}  // namespace canopy::dispatch
