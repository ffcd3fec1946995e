#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "etdump/reader.h"

namespace {

/// Ends the process, which the fuzzer reports, unless every row of a table is whole.
void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

void check_names(const etprof::EventTable& table, const etprof::Column<std::int32_t>& ids) {
    for (const std::int32_t id : ids) {
        require(id >= -1 && id < static_cast<std::int32_t>(table.names.size()));
    }
}

void check_table(const etprof::EventTable& table, std::size_t size) {
    const std::size_t rows = table.profile.name_id.size();
    require(table.profile.end_time.size() == rows && table.profile.metadata_size.size() == rows);
    for (std::size_t row = 0; row < rows; ++row) {
        require(table.profile.block_index[row] < table.blocks.name_id.size());
        require(table.profile.metadata_offset[row] + table.profile.metadata_size[row] <= size);
    }
    check_names(table, table.blocks.name_id);
    check_names(table, table.profile.name_id);
    check_names(table, table.profile.delegate_debug_id_str_id);
    check_names(table, table.allocators.name_id);
    check_names(table, table.debug.name_id);
    require(table.debug.tensor_count.size() == table.debug.name_id.size());
    for (std::size_t row = 0; row < table.debug.tensor_count.size(); ++row) {
        require(table.debug.tensor_begin[row] + table.debug.tensor_count[row] <=
                table.tensors.offset.size());
    }
    for (std::size_t row = 0; row < table.tensors.offset.size(); ++row) {
        require(table.tensors.sizes_begin[row] + table.tensors.sizes_count[row] <=
                table.tensors.sizes.size());
        require(table.tensors.strides_begin[row] + table.tensors.strides_count[row] <=
                table.tensors.strides.size());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        check_table(etprof::read_etdump(data, size), size);
    } catch (const etprof::FormatError& error) {
        require(error.offset() <= size && *error.what() != '\0');
    }
    return 0;
}
