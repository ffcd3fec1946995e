#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace etprof {

template <typename T>
using Column = std::vector<T>;

/// Stands in `*_id` columns where the file has no string. Strings are numbers into
/// EventTable::names, where each stands once.
constexpr std::int32_t kMissing = -1;

/// One row per event block (RunData), in file order.
struct BlockColumns {
    Column<std::int32_t> name_id;
    Column<std::int32_t> bundled_input_index;  ///< -1: not given.
    Column<std::int64_t> event_begin;          ///< In the event order of the whole file.
    Column<std::int64_t> event_end;
};

/// One row per profile event, in file order.
struct ProfileColumns {
    Column<std::uint32_t> block_index;
    Column<std::uint64_t> event_index;  ///< In the event order of the whole file.
    Column<std::int32_t> name_id;
    Column<std::int32_t> delegate_debug_id_str_id;
    Column<std::int32_t> delegate_debug_id_int;
    Column<std::int32_t> instruction_id;
    Column<std::int32_t> chain_index;
    Column<std::uint64_t> start_time;  ///< In ticks: time or cycles, the file does not say.
    Column<std::uint64_t> end_time;
    Column<std::uint64_t> metadata_offset;  ///< In the file; 0: no metadata.
    Column<std::uint32_t> metadata_size;

    void reserve(std::size_t rows);
};

/// One row per allocation event, in file order.
struct AllocationColumns {
    Column<std::uint32_t> block_index;
    Column<std::uint64_t> event_index;
    Column<std::int32_t> allocator_id;
    Column<std::uint64_t> size_bytes;
};

/// One row per allocator, in file order.
struct AllocatorColumns {
    Column<std::uint32_t> block_index;
    Column<std::int32_t> name_id;
};

/// One row per debug event, in file order. The value columns hold what the event's Value holds;
/// `value_fields` tells which: bit n stands for field n of the schema's Value.
struct DebugColumns {
    Column<std::uint32_t> block_index;
    Column<std::uint64_t> event_index;
    Column<std::int32_t> name_id;
    Column<std::int32_t> delegate_debug_id_str_id;
    Column<std::int32_t> delegate_debug_id_int;
    Column<std::int32_t> instruction_id;
    Column<std::uint64_t> chain_index;
    Column<std::int8_t> value_type;  ///< The schema's ValueType; -1: the event has no Value.
    Column<std::uint8_t> value_fields;
    Column<std::int64_t> int_value;
    Column<float> float_value;
    Column<double> double_value;
    Column<std::int8_t> bool_value;
    Column<std::int8_t> is_output;       ///< 0 or 1; -1: not said.
    Column<std::uint64_t> tensor_begin;  ///< First row in TensorColumns.
    Column<std::uint32_t> tensor_count;  ///< The Value's tensor, then those of its list.
};

/// One row per tensor that a debug event mentions.
struct TensorColumns {
    Column<std::int8_t> scalar_type;    ///< The schema's ScalarType.
    Column<std::int64_t> offset;        ///< In the debug buffer; -1: the tensor has no bytes.
    Column<std::uint64_t> sizes_begin;  ///< First of the tensor's elements of `sizes`.
    Column<std::uint32_t> sizes_count;
    Column<std::uint64_t> strides_begin;  ///< First of the tensor's elements of `strides`.
    Column<std::uint32_t> strides_count;
    Column<std::int64_t> sizes;    ///< Of all tensors, end to end.
    Column<std::int64_t> strides;  ///< Of all tensors, end to end.
};

/// Everything an ETDump says, in columns.
struct EventTable {
    std::uint32_t version = 0;
    std::vector<std::string> names;
    BlockColumns blocks;
    ProfileColumns profile;
    AllocationColumns allocations;
    AllocatorColumns allocators;
    DebugColumns debug;
    TensorColumns tensors;
};

}  // namespace etprof
