#include "layout.h"

#include <cstdint>

#include "check.h"

namespace {

using namespace etprof;

/// Where a frame that `call_shifted` calls lies.
int keep_address(void* argument) {
    volatile char here = 0;
    *static_cast<std::uintptr_t*>(argument) = reinterpret_cast<std::uintptr_t>(&here);
    return 7;
}

std::uintptr_t frame_with(std::size_t stack_bytes) {
    std::uintptr_t address = 0;
    CHECK_EQUAL(call_shifted({0, stack_bytes}, keep_address, &address), 7);
    return address;
}

}  // namespace

TEST(layout_is_two_numbers_of_four_digits) {
    const LayoutShift shift = parse_layout_shift("1040,0272");
    CHECK_EQUAL(shift.heap_bytes, 1040u);
    CHECK_EQUAL(shift.stack_bytes, 272u);
    for (const char* text : {"", "1040", "1040,272", "1040;0272", "104a,0272", "1040,02720"}) {
        CHECK_EQUAL(parse_layout_shift(text).heap_bytes, 0u);
        CHECK_EQUAL(parse_layout_shift(text).stack_bytes, 0u);
    }
    CHECK_EQUAL(parse_layout_shift(nullptr).stack_bytes, 0u);
}

TEST(layout_moves_the_frames_that_follow) {
    const std::uintptr_t moved = frame_with(0) - frame_with(4096);
    CHECK(moved >= 4096 && moved < 4096 + 64);
}

TEST(layout_plain_path_has_no_slashes_before_the_first) {
    CHECK_EQUAL(plain_path(std::string("/////tmp/x")), std::string("/tmp/x"));
    CHECK_EQUAL(plain_path(std::string("//host/x")), std::string("//host/x"));
    CHECK_EQUAL(plain_path(std::string("a/b")), std::string("a/b"));
    CHECK_EQUAL(plain_path(std::string("////")), std::string("////"));
}
