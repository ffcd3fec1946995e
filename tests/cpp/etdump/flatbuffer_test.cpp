#include "etdump/flatbuffer.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "refusal.h"

using etprof::Buffer;
using etprof::TableReader;

namespace {

/// Bytes on the heap in an allocation of exactly their size, where sanitizers see any byte more.
class Bytes {
 public:
    explicit Bytes(std::size_t size) : size_(size), data_(new std::uint8_t[size]()) {}

    template <typename T>
    Bytes& put(std::size_t at, T value) {
        std::memcpy(data_.get() + at, &value, sizeof value);
        return *this;
    }

    Buffer buffer() const { return Buffer(data_.get(), 0, size_); }

 private:
    std::size_t size_;
    std::unique_ptr<std::uint8_t[]> data_;
};

constexpr std::array<std::uint8_t, 1> kOneField{4};
constexpr std::array<std::uint8_t, 2> kWidths{4, 8};

/// An offset at byte 0 leads to a table at byte 12, with a vtable at byte 4.
Bytes make_table(std::uint16_t vtable_size, std::uint16_t table_size, std::uint16_t first_field,
                 std::uint16_t second_field) {
    Bytes bytes(28);
    bytes.put<std::uint32_t>(0, 12).put<std::uint16_t>(4, vtable_size);
    bytes.put<std::uint16_t>(6, table_size).put<std::uint16_t>(8, first_field);
    bytes.put<std::uint16_t>(10, second_field).put<std::int32_t>(12, 8);
    bytes.put<std::uint32_t>(16, 41).put<std::uint64_t>(20, 1ull << 40);
    return bytes;
}

}  // namespace

TEST(a_buffer_holds_its_bytes_and_no_more) {
    const Bytes bytes(10);
    const Buffer buffer = bytes.buffer();
    CHECK(buffer.holds(0, 10));
    CHECK(buffer.holds(10, 0));
    CHECK(!buffer.holds(0, 11));
    CHECK(!buffer.holds(7, 4));
    CHECK(!buffer.holds(11, 0));
}

TEST(sizes_and_positions_near_the_largest_number_do_not_wrap_around) {
    constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
    const Bytes bytes(10);
    const Buffer buffer = bytes.buffer();
    CHECK(!buffer.holds(kLargest, 1));
    CHECK(!buffer.holds(kLargest - 3, 4));
    CHECK(!buffer.holds(1, kLargest));
    CHECK(!buffer.holds(8, kLargest - 4));
}

TEST(loads_need_no_alignment) {
    Bytes bytes(24);
    for (std::size_t at = 0; at < 16; ++at) {
        bytes.put<std::uint64_t>(at, 0x0123456789abcdefull + at);
        CHECK_EQUAL(0x0123456789abcdefull + at, bytes.buffer().load<std::uint64_t>(at));
    }
}

TEST(an_offset_leads_forward_to_four_bytes) {
    Bytes bytes(16);
    CHECK_EQUAL(12u, bytes.put<std::uint32_t>(4, 8).buffer().follow(4, "X"));
    CHECK_REFUSED(bytes.put<std::uint32_t>(4, 9).buffer().follow(4, "X"),
                  "offset of X leads to byte 13 of 16", 4);
    CHECK_REFUSED(bytes.put<std::uint32_t>(4, 0).buffer().follow(4, "X"), "offset of X is 0", 4);
    CHECK_REFUSED(bytes.put<std::int32_t>(4, -4).buffer().follow(4, "X"),
                  "offset of X leads to byte 4294967296 of 16", 4);
}

TEST(a_vector_ends_inside_the_buffer) {
    Bytes bytes(16);
    bytes.put<std::uint32_t>(0, 4).put<std::uint32_t>(4, 2);
    Buffer buffer = bytes.buffer();
    const etprof::Elements elements = buffer.elements(0, 4, "X");
    CHECK_EQUAL(8u, elements.begin);
    CHECK_EQUAL(2u, elements.count);
    CHECK_REFUSED(buffer.elements(0, 8, "X"), "X claims 2 elements of 8 bytes where 8 bytes follow",
                  4);
    bytes.put<std::uint32_t>(4, 0xffffffff);
    CHECK_REFUSED(bytes.buffer().elements(0, 8, "X"),
                  "X claims 4294967295 elements of 8 bytes where 8 bytes follow", 4);
}

TEST(a_string_may_end_with_the_buffer) {
    Bytes bytes(11);
    bytes.put<std::uint32_t>(0, 4).put<std::uint32_t>(4, 3);
    bytes.put<char>(8, 'a').put<char>(9, 'b').put<char>(10, 'c');
    CHECK_EQUAL("abc", bytes.buffer().string(0, "X"));
    bytes.put<std::uint32_t>(4, 4);
    CHECK_REFUSED(bytes.buffer().string(0, "X"),
                  "X claims 4 elements of 1 bytes where 3 bytes follow", 4);
}

TEST(vectors_together_may_not_be_larger_than_the_buffer) {
    Bytes bytes(16);
    bytes.put<std::uint32_t>(0, 4).put<std::uint32_t>(4, 1);
    Buffer buffer = bytes.buffer();
    buffer.elements(0, 4, "X");
    buffer.elements(0, 4, "X");
    CHECK_REFUSED(buffer.elements(0, 4, "X"),
                  "tables and vectors overlap: together they claim more bytes than there are", 4);
}

TEST(fields_read_from_where_the_vtable_puts_them) {
    const Bytes bytes = make_table(8, 16, 4, 8);
    Buffer buffer = bytes.buffer();
    TableReader<2> reader("X", kWidths);
    const auto table = reader.follow(buffer, 0);
    CHECK_EQUAL(41u, table.get<std::uint32_t>(0, 7));
    CHECK_EQUAL(1ull << 40, table.get<std::uint64_t>(1, 7));
}

TEST(fields_behind_a_short_vtable_have_the_schemas_default) {
    const Bytes bytes = make_table(6, 16, 4, 0xffff);
    Buffer buffer = bytes.buffer();
    TableReader<2> reader("X", kWidths);
    const auto table = reader.follow(buffer, 0);
    CHECK(table.has(0));
    CHECK(!table.has(1));
    CHECK_EQUAL(7u, table.get<std::uint64_t>(1, 7));
}

TEST(fields_of_a_later_schema_are_passed_over) {
    const Bytes bytes = make_table(8, 16, 4, 8);
    Buffer buffer = bytes.buffer();
    TableReader<1> reader("X", kOneField);
    CHECK_EQUAL(41u, reader.follow(buffer, 0).get<std::uint32_t>(0, 7));
}

TEST(a_vtable_of_an_impossible_size_is_refused) {
    for (const std::uint16_t size : {0, 2, 3, 5, 7, 26, 0xffff}) {
        const Bytes bytes = make_table(size, 16, 4, 8);
        Buffer buffer = bytes.buffer();
        TableReader<2> reader("X", kWidths);
        CHECK_REFUSED(reader.follow(buffer, 0),
                      "vtable of X claims a size of " + std::to_string(size) + " bytes", 4);
    }
}

TEST(a_vtable_may_stand_behind_its_table_but_not_outside) {
    for (const std::int32_t distance : {13, -13, -16, INT32_MAX, INT32_MIN}) {
        Bytes bytes = make_table(8, 16, 4, 8);
        bytes.put<std::int32_t>(12, distance);
        Buffer buffer = bytes.buffer();
        TableReader<2> reader("X", kWidths);
        CHECK_REFUSED(reader.follow(buffer, 0), "vtable of X is outside the file", 12);
    }
    Bytes bytes = make_table(8, 12, 4, 0);
    bytes.put<std::int32_t>(12, -12).put<std::uint32_t>(24, 4 | 12 << 16);
    Buffer buffer = bytes.buffer();
    TableReader<2> reader("X", kWidths);
    CHECK(!reader.follow(buffer, 0).has(0));
}

TEST(a_field_that_leaves_its_table_is_refused) {
    const Bytes bytes = make_table(8, 15, 4, 8);
    Buffer buffer = bytes.buffer();
    TableReader<2> reader("X", kWidths);
    CHECK_REFUSED(reader.follow(buffer, 0),
                  "vtable of X puts field 1 at byte 8 of a table of 15 bytes", 4);
}

TEST(a_table_that_leaves_the_buffer_is_refused) {
    const Bytes bytes = make_table(8, 17, 4, 8);
    Buffer buffer = bytes.buffer();
    TableReader<2> reader("X", kWidths);
    CHECK_REFUSED(reader.follow(buffer, 0), "X table of 17 bytes reaches past the end", 12);
}

TEST(a_remembered_vtable_does_not_excuse_the_next_tables_extent) {
    // GIVEN two tables with one vtable, the second too near the end
    Bytes bytes(34);
    bytes.put<std::uint32_t>(0, 14).put<std::uint32_t>(4, 26);
    bytes.put<std::uint16_t>(8, 6).put<std::uint16_t>(10, 8).put<std::uint16_t>(12, 4);
    bytes.put<std::int32_t>(14, 6).put<std::int32_t>(30, 22);
    Buffer buffer = bytes.buffer();
    TableReader<1> reader("X", kOneField);
    CHECK(reader.follow(buffer, 0).has(0));
    CHECK_REFUSED(reader.follow(buffer, 4), "X table of 8 bytes reaches past the end", 30);
}

TEST(two_vtables_do_not_mix) {
    // GIVEN a table without fields between two with one
    Bytes bytes(48);
    bytes.put<std::uint32_t>(0, 24).put<std::uint32_t>(4, 28).put<std::uint32_t>(8, 28);
    bytes.put<std::uint16_t>(12, 6).put<std::uint16_t>(14, 8).put<std::uint16_t>(16, 4);
    bytes.put<std::uint16_t>(18, 4).put<std::uint16_t>(20, 4);
    bytes.put<std::int32_t>(24, 12).put<std::uint32_t>(28, 5);
    bytes.put<std::int32_t>(32, 14).put<std::int32_t>(36, 24).put<std::uint32_t>(40, 6);
    Buffer buffer = bytes.buffer();
    TableReader<1> reader("X", kOneField);
    CHECK_EQUAL(5u, reader.follow(buffer, 0).get<std::uint32_t>(0, 9));
    CHECK_EQUAL(9u, reader.follow(buffer, 4).get<std::uint32_t>(0, 9));
    CHECK_EQUAL(6u, reader.follow(buffer, 8).get<std::uint32_t>(0, 9));
}
