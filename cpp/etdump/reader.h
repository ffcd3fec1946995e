#pragma once

#include <cstddef>
#include <cstdint>

#include "etdump/event_table.h"
#include "etdump/format_error.h"

namespace etprof {

/// Reads an ETDump, with or without a size prefix, into columns.
///
/// Any bytes are safe: they yield columns or a FormatError. Time is proportional to `size` (times
/// its logarithm when all strings differ), and so is memory. The result does not refer to `data`.
EventTable read_etdump(const std::uint8_t* data, std::size_t size);

}  // namespace etprof
