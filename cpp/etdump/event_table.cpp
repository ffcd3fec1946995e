#include "etdump/event_table.h"

namespace etprof {

void ProfileColumns::reserve(std::size_t rows) {
    block_index.reserve(rows);
    event_index.reserve(rows);
    name_id.reserve(rows);
    delegate_debug_id_str_id.reserve(rows);
    delegate_debug_id_int.reserve(rows);
    instruction_id.reserve(rows);
    chain_index.reserve(rows);
    start_time.reserve(rows);
    end_time.reserve(rows);
    metadata_offset.reserve(rows);
    metadata_size.reserve(rows);
}

}  // namespace etprof
