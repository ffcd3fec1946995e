#include "etdump/flatbuffer.h"

namespace etprof {
namespace {

/// Length and table size stand in front of a vtable's field offsets.
constexpr std::uint32_t kVtableHeaderSize = 4;

[[noreturn]] void throw_bad_vtable(std::uint64_t vtable, const char* name,
                                   const std::string& fault) {
    throw FormatError(Fault::kDamaged, vtable, std::string("vtable of ") + name + " " + fault);
}

}  // namespace

void Buffer::throw_bad_offset(std::uint64_t at, std::uint64_t distance, const char* what) const {
    if (distance == 0) {
        throw FormatError(Fault::kDamaged, at, std::string("offset of ") + what + " is 0");
    }
    throw FormatError(Fault::kDamaged, at,
                      std::string("offset of ") + what + " leads to byte " +
                          std::to_string(at + distance) + " of " + std::to_string(end_));
}

void Buffer::throw_bad_count(std::uint64_t at, std::uint32_t count, std::uint32_t width,
                             const char* what) const {
    throw FormatError(Fault::kDamaged, at,
                      std::string(what) + " claims " + std::to_string(count) + " elements of " +
                          std::to_string(width) + " bytes, " + std::to_string(end_ - at - 4) +
                          " bytes follow");
}

void Buffer::throw_overlap(std::uint64_t at) {
    throw FormatError(Fault::kDamaged, at,
                      "tables and vectors overlap: together they claim more bytes than there are");
}

std::uint64_t find_vtable(const Buffer& buffer, std::uint64_t table, const char* name) {
    const std::int64_t distance = buffer.load<std::int32_t>(table);
    const std::int64_t vtable = static_cast<std::int64_t>(table) - distance;
    if (vtable < 0 || !buffer.holds(static_cast<std::uint64_t>(vtable), kVtableHeaderSize)) {
        throw FormatError(
            Fault::kDamaged, table,
            std::string(name) + " table has its vtable at byte " + std::to_string(vtable));
    }
    return static_cast<std::uint64_t>(vtable);
}

void check_vtable(const Buffer& buffer, std::uint64_t vtable, const char* name,
                  const std::uint8_t* widths, std::uint16_t* field_at, std::size_t fields) {
    const std::uint32_t vtable_size = buffer.load<std::uint16_t>(vtable);
    const std::uint32_t table_size = buffer.load<std::uint16_t>(vtable + 2);
    if (vtable_size < kVtableHeaderSize || vtable_size % 2 != 0) {
        throw_bad_vtable(vtable, name, "is " + std::to_string(vtable_size) + " bytes long");
    }
    if (!buffer.holds(vtable, vtable_size)) {
        throw_bad_vtable(vtable, name,
                         "of " + std::to_string(vtable_size) + " bytes reaches past the end");
    }
    if (table_size < 4) {
        throw_bad_vtable(vtable, name, "makes its table " + std::to_string(table_size) + " bytes");
    }
    const std::size_t stored = (vtable_size - kVtableHeaderSize) / 2;
    for (std::size_t field = 0; field < fields; ++field) {
        const std::uint16_t at =
            field < stored ? buffer.load<std::uint16_t>(vtable + kVtableHeaderSize + 2 * field) : 0;
        if (at != 0 && (at < 4 || std::uint32_t{at} + widths[field] > table_size)) {
            throw_bad_vtable(vtable, name,
                             "puts field " + std::to_string(field) + " at byte " +
                                 std::to_string(at) + " of a table of " +
                                 std::to_string(table_size) + " bytes");
        }
        field_at[field] = at;
    }
}

}  // namespace etprof
