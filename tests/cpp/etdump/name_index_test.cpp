#include "etdump/name_index.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "etdump/format_error.h"
#include "refusal.h"

using etprof::NameIndex;

namespace {

constexpr const char* kOverlap = "strings overlap: together they claim more bytes than there are";

}  // namespace

TEST(numbers_follow_first_appearance) {
    NameIndex index(100);
    CHECK_EQUAL(0, index.find_or_add("b", 0));
    CHECK_EQUAL(1, index.find_or_add("a", 0));
    CHECK_EQUAL(2, index.find_or_add("", 0));
    CHECK_EQUAL(0, index.find_or_add("b", 0));
    const std::vector<std::string_view>& names = index.names();
    CHECK_EQUAL(3u, names.size());
    CHECK(names == (std::vector<std::string_view>{"b", "a", ""}));
}

TEST(a_wrong_guess_of_the_next_name_does_no_harm) {
    // GIVEN an order in which every name has several followers, each time at a new place
    const std::string order = "abacbcaabbccabcacbba";
    NameIndex index(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        CHECK_EQUAL(order[i] - 'a', index.find_or_add(std::string_view(order).substr(i, 1), i));
    }
    CHECK(index.names() == (std::vector<std::string_view>{"a", "b", "c"}));
}

TEST(names_with_a_common_start_or_a_nul_differ) {
    NameIndex index(100);
    const std::string with_nul("a\0b", 3);
    CHECK_EQUAL(0, index.find_or_add("a", 0));
    CHECK_EQUAL(1, index.find_or_add("ab", 0));
    CHECK_EQUAL(2, index.find_or_add(with_nul, 0));
    CHECK_EQUAL(0, index.find_or_add("a", 0));
}

TEST(different_names_may_not_be_larger_than_the_file) {
    NameIndex index(8);
    index.find_or_add("abcd", 1);
    index.find_or_add("efgh", 2);
    index.find_or_add("abcd", 3);
    CHECK_REFUSED(index.find_or_add("i", 4), kOverlap, 4);
}

TEST(a_name_shared_by_all_events_is_read_once) {
    // GIVEN one string that ten thousand offsets lead to
    const std::string name(60, 'x');
    NameIndex index(64);
    for (int i = 0; i < 10000; ++i) {
        CHECK_EQUAL(0, index.find_or_add(name, 0));
    }
}

TEST(names_may_not_be_compared_for_ever) {
    // GIVEN two long strings that alternate at ever new places, in a file that cannot hold them
    const std::string first(50, 'x');
    const std::string second(50, 'y');
    std::vector<std::string> copies(100, first);
    NameIndex index(100);
    index.find_or_add(first, 0);
    index.find_or_add(second, 0);
    const auto repeat = [&] {
        for (const std::string& copy : copies) {
            index.find_or_add(copy, 9);
        }
        return 0;
    };
    CHECK_REFUSED(repeat(), kOverlap, 9);
}
