#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "etdump/format_error.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "FlatBuffers are little-endian, and this reader loads them as they are"
#endif

namespace etprof {

/// Elements of a FlatBuffers vector: where the first one starts, and how many follow.
struct Elements {
    std::uint64_t begin = 0;
    std::uint32_t count = 0;
};

/// Untrusted FlatBuffers bytes. Every position that is handed out has been checked; nothing is
/// assumed about alignment, and no byte outside is ever loaded.
///
/// FlatBuffers let many offsets lead to one table, so a small file can describe a huge tree. A
/// writer of ETDumps never shares tables or vectors: together they are smaller than the file. That
/// is the budget which bounds time and memory here.
class Buffer {
 public:
    /// `begin` is the position in the file where the buffer proper starts, after any size prefix.
    Buffer(const std::uint8_t* data, std::uint64_t begin, std::uint64_t end)
        : data_(data), begin_(begin), end_(end), budget_(end) {}

    /// Loads a scalar from a checked position.
    template <typename T>
    T load(std::uint64_t at) const {
        T value;
        std::memcpy(&value, data_ + at, sizeof value);
        return value;
    }

    std::uint64_t begin() const { return begin_; }

    /// Whether `length` bytes exist at `at`.
    bool holds(std::uint64_t at, std::uint64_t length) const {
        return at <= end_ && length <= end_ - at;
    }

    /// Follows the offset stored at the checked position `at`; `what` it leads to must have room
    /// for four bytes there.
    std::uint64_t follow(std::uint64_t at, const char* what) const {
        const std::uint64_t distance = load<std::uint32_t>(at);
        if (distance == 0 || !holds(at + distance, 4)) {
            throw_bad_offset(at, distance, what);
        }
        return at + distance;
    }

    /// Follows the offset at `at` to a vector whose elements are `width` bytes each.
    Elements elements(std::uint64_t at, std::uint32_t width, const char* what) {
        const std::uint64_t vector = follow(at, what);
        const Elements found{vector + 4, load<std::uint32_t>(vector)};
        const std::uint64_t size = std::uint64_t{found.count} * width;
        if (!holds(found.begin, size)) {
            throw_bad_count(vector, found.count, width, what);
        }
        charge(4 + size, vector);
        return found;
    }

    /// Follows the offset at `at` to a string; the view lives as long as the bytes.
    std::string_view string(std::uint64_t at, const char* what) const {
        const std::uint64_t start = follow(at, what);
        const std::uint32_t length = load<std::uint32_t>(start);
        if (!holds(start + 4, length)) {
            throw_bad_count(start, length, 1, what);
        }
        return {reinterpret_cast<const char*>(data_ + start + 4), length};
    }

    /// Takes `size` bytes of structure at `at` from the budget.
    void charge(std::uint64_t size, std::uint64_t at) {
        if (size > budget_) {
            throw_overlap(at);
        }
        budget_ -= size;
    }

    [[noreturn]] void throw_bad_offset(std::uint64_t at, std::uint64_t distance,
                                       const char* what) const;
    [[noreturn]] void throw_bad_count(std::uint64_t at, std::uint32_t count, std::uint32_t width,
                                      const char* what) const;
    [[noreturn]] static void throw_overlap(std::uint64_t at);

 private:
    const std::uint8_t* data_;
    std::uint64_t begin_;
    std::uint64_t end_;
    std::uint64_t budget_;
};

/// Where a vtable puts the fields that a reader knows; 0 stands for a field that is not there.
template <std::size_t N>
struct Layout {
    /// At first a position that no 32-bit distance leads to, not even by wrapping around.
    std::uint64_t vtable = std::uint64_t{1} << 63;
    std::uint32_t table_size = 0;
    std::array<std::uint16_t, N> field_at{};
};

/// A table whose vtable and extent have been checked.
template <std::size_t N>
class Table {
 public:
    Table(const Buffer& buffer, std::uint64_t at, const Layout<N>& layout)
        : buffer_(&buffer), at_(at), layout_(&layout) {}

    bool has(std::size_t field) const { return layout_->field_at[field] != 0; }

    /// Position of a field that is there.
    std::uint64_t position(std::size_t field) const { return at_ + layout_->field_at[field]; }

    /// Position of the table itself.
    std::uint64_t position() const { return at_; }

    /// The field's value, or `missing` (the schema's default) if it is not there.
    template <typename T>
    T get(std::size_t field, T missing) const {
        return has(field) ? buffer_->load<T>(position(field)) : missing;
    }

 private:
    const Buffer* buffer_;
    std::uint64_t at_;
    const Layout<N>* layout_;
};

/// What a reader knows about one kind of table.
struct TableKind {
    const char* name;
    const std::uint8_t* widths;  ///< Of the schema's first fields, in bytes.
    std::size_t fields;
};

/// Checks the vtable of the table at the checked position `table`: in the file, of a possible size,
/// and with every known field inside its table. `field_at` gets the fields' places. Returns the
/// table's size, which must not be loaded again: a mapped file may change meanwhile.
std::uint32_t check_vtable(const Buffer& buffer, const TableKind& kind, std::uint64_t table,
                           std::uint64_t vtable, std::uint16_t* field_at);

[[noreturn]] void throw_bad_extent(const char* name, std::uint64_t table, std::uint32_t size);

/// Reads tables of one kind. It remembers the last vtable, for a writer gives the same one to all
/// tables that have the same fields.
template <std::size_t N>
class TableReader {
 public:
    /// `widths` are those of the schema's first fields, in bytes.
    TableReader(const char* name, const std::array<std::uint8_t, N>& widths)
        : name_(name), widths_(widths) {}

    /// Reads the table that the offset at the checked position `at` leads to. The table returned
    /// is valid until the next call.
    Table<N> follow(Buffer& buffer, std::uint64_t at) {
        const std::uint64_t table = buffer.follow(at, name_);
        // Before the file's first byte, this wraps around to a position behind its last.
        const auto distance = static_cast<std::int64_t>(buffer.load<std::int32_t>(table));
        const std::uint64_t vtable = table - static_cast<std::uint64_t>(distance);
        if (vtable != layout_.vtable) {
            layout_.table_size = check_vtable(buffer, {name_, widths_.data(), N}, table, vtable,
                                              layout_.field_at.data());
            layout_.vtable = vtable;
        }
        if (!buffer.holds(table, layout_.table_size)) {
            throw_bad_extent(name_, table, layout_.table_size);
        }
        buffer.charge(layout_.table_size, table);
        return Table<N>(buffer, table, layout_);
    }

 private:
    const char* name_;
    std::array<std::uint8_t, N> widths_;
    Layout<N> layout_;
};

}  // namespace etprof
