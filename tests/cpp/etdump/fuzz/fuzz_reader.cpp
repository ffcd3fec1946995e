#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "../contents.h"
#include "etdump/reader.h"

namespace {

/// Ends the process, which the fuzzer reports, unless what every table promises holds.
void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

/// Every column has a row for each of `rows`, but those that hold many values of each.
template <typename Columns>
void check_rows(Columns& columns, std::size_t rows) {
    columns.for_each([rows](std::string_view name, const auto& column) {
        require(column.size() == rows || name == "sizes" || name == "strides");
    });
}

void check_names(const etprof::EventTable& table, const etprof::Column<std::int32_t>& ids) {
    for (const std::int32_t id : ids) {
        require(id == etprof::kMissing || static_cast<std::size_t>(id) < table.names.size());
    }
}

/// Blocks share the events out without a gap.
std::int64_t check_blocks(const etprof::BlockColumns& blocks) {
    std::int64_t next = 0;
    for (std::size_t row = 0; row < blocks.event_begin.size(); ++row) {
        require(blocks.event_begin[row] == next && blocks.event_end[row] >= next);
        next = blocks.event_end[row];
    }
    return next;
}

/// Events stand in file order, each in its block.
template <typename Columns>
void check_places(const Columns& columns, const etprof::BlockColumns& blocks) {
    std::int64_t next = 0;
    for (std::size_t row = 0; row < columns.event_index.size(); ++row) {
        const std::uint32_t block = columns.block_index[row];
        const auto place = static_cast<std::int64_t>(columns.event_index[row]);
        require(block < blocks.event_begin.size() && place >= next);
        require(place >= blocks.event_begin[block] && place < blocks.event_end[block]);
        next = place + 1;
    }
}

/// The tensors of debug events, and the numbers of tensors, follow each other without a gap.
template <typename Begins, typename Counts>
void check_spans(const Begins& begins, const Counts& counts, std::size_t size) {
    std::uint64_t next = 0;
    for (std::size_t row = 0; row < begins.size(); ++row) {
        require(begins[row] == next);
        next += counts[row];
    }
    require(next == size);
}

void check_events(const etprof::EventTable& table) {
    const std::int64_t events = check_blocks(table.blocks);
    check_places(table.profile, table.blocks);
    check_places(table.allocations, table.blocks);
    check_places(table.debug, table.blocks);
    require(table.profile.name_id.size() + table.allocations.size_bytes.size() +
                table.debug.name_id.size() <=
            static_cast<std::size_t>(events));
    for (const std::uint32_t block : table.allocators.block_index) {
        require(block < table.blocks.name_id.size());
    }
}

void check_tensors(const etprof::DebugColumns& debug, const etprof::TensorColumns& tensors) {
    check_spans(debug.tensor_begin, debug.tensor_count, tensors.offset.size());
    check_spans(tensors.sizes_begin, tensors.sizes_count, tensors.sizes.size());
    check_spans(tensors.strides_begin, tensors.strides_count, tensors.strides.size());
    for (std::size_t row = 0; row < debug.value_type.size(); ++row) {
        require(debug.bool_value[row] == 0 || debug.bool_value[row] == 1);
        require(debug.is_output[row] >= -1 && debug.is_output[row] <= 1);
    }
}

void check_table(etprof::EventTable& table, std::size_t size) {
    check_rows(table.blocks, table.blocks.name_id.size());
    check_rows(table.profile, table.profile.name_id.size());
    check_rows(table.allocations, table.allocations.size_bytes.size());
    check_rows(table.allocators, table.allocators.name_id.size());
    check_rows(table.debug, table.debug.name_id.size());
    check_rows(table.tensors, table.tensors.offset.size());
    check_names(table, table.blocks.name_id);
    check_names(table, table.profile.name_id);
    check_names(table, table.profile.delegate_debug_id_str_id);
    check_names(table, table.allocators.name_id);
    check_names(table, table.debug.name_id);
    check_names(table, table.debug.delegate_debug_id_str_id);
    check_events(table);
    check_tensors(table.debug, table.tensors);
    for (std::size_t row = 0; row < table.profile.metadata_size.size(); ++row) {
        require(table.profile.metadata_offset[row] + table.profile.metadata_size[row] <= size);
    }
}

/// Pieces hold together what the whole file holds, and come to its end.
void check_pieces(const std::uint8_t* data, std::size_t size) {
    const std::size_t rows = 1 + data[size - 1] % 8;
    const auto whole = read_pieces(*etprof::open_etdump(data, size), SIZE_MAX, "");
    require(read_pieces(*etprof::open_etdump(data, size), rows, "Method::execute") == whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    bool is_sound = false;
    try {
        etprof::EventTable table = etprof::open_etdump(data, size)->read(SIZE_MAX, "");
        check_table(table, size);
        is_sound = true;
        check_pieces(data, size);
    } catch (const etprof::FormatError& error) {
        require(error.offset() <= size && *error.what() != '\0');
        require(!is_sound);
    }
    return 0;
}
