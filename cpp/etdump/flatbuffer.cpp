#include "etdump/flatbuffer.h"

namespace etprof {
namespace {

/// A vtable's own size and its table's size stand in front of the field offsets.
constexpr std::uint32_t kVtableHeaderSize = 4;
/// A table starts with the offset of its vtable.
constexpr std::uint32_t kTableHeaderSize = 4;

[[noreturn]] void throw_damaged(std::uint64_t at, const std::string& reason) {
    throw FormatError(Fault::kDamaged, at, reason);
}

[[noreturn]] void throw_bad_vtable(const TableKind& kind, std::uint64_t at,
                                   const std::string& claim) {
    throw_damaged(at, std::string("vtable of ") + kind.name + claim);
}

}  // namespace

void Buffer::throw_bad_offset(std::uint64_t at, std::uint64_t distance, const char* what) const {
    if (distance == 0) {
        throw_damaged(at, std::string("offset of ") + what + " is 0");
    }
    throw_damaged(at, std::string("offset of ") + what + " leads to byte " +
                          std::to_string(at + distance) + " of " + std::to_string(end_));
}

void Buffer::throw_bad_count(std::uint64_t at, std::uint32_t count, std::uint32_t width,
                             const char* what) const {
    throw_damaged(at, std::string(what) + " claims " + std::to_string(count) + " elements of " +
                          std::to_string(width) + " bytes where " + std::to_string(end_ - at - 4) +
                          " bytes follow");
}

void Buffer::throw_overlap(std::uint64_t at) {
    throw_damaged(at, "tables and vectors overlap: together they claim more bytes than there are");
}

void throw_bad_extent(const char* name, std::uint64_t table, std::uint32_t size) {
    throw_damaged(table, std::string(name) + " table of " + std::to_string(size) +
                             " bytes reaches past the end");
}

std::uint32_t check_vtable(const Buffer& buffer, const TableKind& kind, std::uint64_t table,
                           std::uint64_t vtable, std::uint16_t* field_at) {
    if (!buffer.holds(vtable, kVtableHeaderSize)) {
        throw_bad_vtable(kind, table, " is outside the file");
    }
    const std::uint32_t size = buffer.load<std::uint16_t>(vtable);
    const std::uint32_t table_size = buffer.load<std::uint16_t>(vtable + 2);
    if (size < kVtableHeaderSize || size % 2 != 0 || !buffer.holds(vtable, size)) {
        throw_bad_vtable(kind, vtable, " claims a size of " + std::to_string(size) + " bytes");
    }
    if (table_size < kTableHeaderSize) {
        throw_bad_vtable(kind, vtable,
                         " claims a table of " + std::to_string(table_size) + " bytes");
    }
    const std::size_t stored = (size - kVtableHeaderSize) / 2;
    for (std::size_t field = 0; field < kind.fields; ++field) {
        field_at[field] =
            field < stored ? buffer.load<std::uint16_t>(vtable + kVtableHeaderSize + 2 * field) : 0;
        const std::uint32_t at = field_at[field];
        if (at != 0 && (at < kTableHeaderSize || at + kind.widths[field] > table_size)) {
            throw_bad_vtable(kind, vtable,
                             " puts field " + std::to_string(field) + " at byte " +
                                 std::to_string(at) + " of a table of " +
                                 std::to_string(table_size) + " bytes");
        }
    }
    return table_size;
}

}  // namespace etprof
