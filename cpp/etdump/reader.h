#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "etdump/format_error.h"

namespace etprof {

template <typename T>
using Column = std::vector<T>;

/// Stands in `*_id` columns where the file has no string. Strings are numbers into
/// the names of the file, where each stands once.
constexpr std::int32_t kMissing = -1;

// Each table's columns are declared once, in a list of COLUMN(type, name). etprof.etdump.reader
// gives the same names and types to Python, and a test compares the two.
#define ETPROF_DECLARE_COLUMN(type, name) Column<type> name;
#define ETPROF_VISIT_COLUMN(type, name) visit(#name, name);

/// A table with the columns of LIST, and `for_each`, which calls visit(name, column) for each.
#define ETPROF_TABLE(Columns, LIST)    \
    struct Columns {                   \
        LIST(ETPROF_DECLARE_COLUMN)    \
        template <typename Visit>      \
        void for_each(Visit&& visit) { \
            LIST(ETPROF_VISIT_COLUMN)  \
        }                              \
    };

#define ETPROF_BLOCK_COLUMNS(COLUMN)                                                      \
    COLUMN(std::int32_t, name_id)                                                         \
    COLUMN(std::int32_t, bundled_input_index) /* -1: not given. */                        \
    COLUMN(std::int64_t, event_begin)         /* In the event order of the whole file. */ \
    COLUMN(std::int64_t, event_end)

/// One row per event block (RunData), in file order.
ETPROF_TABLE(BlockColumns, ETPROF_BLOCK_COLUMNS)

#define ETPROF_PROFILE_COLUMNS(COLUMN)                                                       \
    COLUMN(std::uint32_t, block_index)                                                       \
    COLUMN(std::uint64_t, event_index) /* In the event order of the whole file. */           \
    COLUMN(std::int32_t, name_id)                                                            \
    COLUMN(std::int32_t, delegate_debug_id_str_id)                                           \
    COLUMN(std::int32_t, delegate_debug_id_int)                                              \
    COLUMN(std::int32_t, instruction_id)                                                     \
    COLUMN(std::int32_t, chain_index)                                                        \
    COLUMN(std::uint64_t, start_time) /* In ticks: time or cycles, the file does not say. */ \
    COLUMN(std::uint64_t, end_time)                                                          \
    COLUMN(std::uint64_t, metadata_offset) /* In the file; 0: no metadata. */                \
    COLUMN(std::uint32_t, metadata_size)

/// One row per profile event, in file order.
ETPROF_TABLE(ProfileColumns, ETPROF_PROFILE_COLUMNS)

#define ETPROF_ALLOCATION_COLUMNS(COLUMN) \
    COLUMN(std::uint32_t, block_index)    \
    COLUMN(std::uint64_t, event_index)    \
    COLUMN(std::int32_t, allocator_id)    \
    COLUMN(std::uint64_t, size_bytes)

/// One row per allocation event, in file order.
ETPROF_TABLE(AllocationColumns, ETPROF_ALLOCATION_COLUMNS)

#define ETPROF_ALLOCATOR_COLUMNS(COLUMN) \
    COLUMN(std::uint32_t, block_index)   \
    COLUMN(std::int32_t, name_id)

/// One row per allocator, in file order.
ETPROF_TABLE(AllocatorColumns, ETPROF_ALLOCATOR_COLUMNS)

#define ETPROF_DEBUG_COLUMNS(COLUMN)                                                     \
    COLUMN(std::uint32_t, block_index)                                                   \
    COLUMN(std::uint64_t, event_index)                                                   \
    COLUMN(std::int32_t, name_id)                                                        \
    COLUMN(std::int32_t, delegate_debug_id_str_id)                                       \
    COLUMN(std::int32_t, delegate_debug_id_int)                                          \
    COLUMN(std::int32_t, instruction_id)                                                 \
    COLUMN(std::uint64_t, chain_index)                                                   \
    COLUMN(std::int8_t, value_type) /* The schema's ValueType; -1: there is no Value. */ \
    COLUMN(std::uint8_t, value_fields)                                                   \
    COLUMN(std::int64_t, int_value)                                                      \
    COLUMN(float, float_value)                                                           \
    COLUMN(double, double_value)                                                         \
    COLUMN(std::int8_t, bool_value)                                                      \
    COLUMN(std::int8_t, is_output)      /* 0 or 1; -1: not said. */                      \
    COLUMN(std::uint64_t, tensor_begin) /* First row in TensorColumns. */                \
    COLUMN(std::uint32_t, tensor_count) /* The Value's tensor, then those of its list. */

/// One row per debug event, in file order. The value columns hold what the event's Value holds;
/// `value_fields` tells which: bit n stands for field n of the schema's Value.
ETPROF_TABLE(DebugColumns, ETPROF_DEBUG_COLUMNS)

#define ETPROF_TENSOR_COLUMNS(COLUMN)                                                       \
    COLUMN(std::int8_t, scalar_type)   /* The schema's ScalarType. */                       \
    COLUMN(std::int64_t, offset)       /* In the debug buffer; -1: no bytes. */             \
    COLUMN(std::uint64_t, sizes_begin) /* First of the tensor's elements of `sizes`. */     \
    COLUMN(std::uint32_t, sizes_count)                                                      \
    COLUMN(std::uint64_t, strides_begin) /* First of the tensor's elements of `strides`. */ \
    COLUMN(std::uint32_t, strides_count)                                                    \
    COLUMN(std::int64_t, sizes)   /* Of all tensors, end to end. */                         \
    COLUMN(std::int64_t, strides) /* Of all tensors, end to end. */

/// One row per tensor that a debug event mentions.
ETPROF_TABLE(TensorColumns, ETPROF_TENSOR_COLUMNS)

/// Everything an ETDump says, in columns.
struct EventTable {
    std::uint32_t version = 0;
    std::uint32_t first_block = 0;  ///< Of the file; columns count blocks from there.
    std::vector<std::string> names;
    BlockColumns blocks;
    ProfileColumns profile;
    AllocationColumns allocations;
    AllocatorColumns allocators;
    DebugColumns debug;
    TensorColumns tensors;
};

/// Reads an ETDump a piece at a time, in memory for one piece.
class PieceReader {
 public:
    virtual ~PieceReader() = default;

    virtual bool at_end() const = 0;

    /// Returns the next `rows` profile events and all up to the next that is named `last` and is no
    /// delegate's, with what stands between them; the whole file for SIZE_MAX rows. The first block
    /// may have begun in the piece before. Names are those that no piece before had; their numbers
    /// hold for later pieces.
    virtual EventTable read(std::size_t rows, std::string_view last) = 0;
};

/// Opens an ETDump, with or without a size prefix.
///
/// Any bytes are safe: they yield columns or a FormatError. Time is proportional to `size` (times
/// its logarithm when all strings differ). `data` must outlive the reader, not what it returns.
std::unique_ptr<PieceReader> open_etdump(const std::uint8_t* data, std::size_t size);

}  // namespace etprof
