#include "kernel_trace/kernel_calls.h"

#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "check.h"

namespace {

using namespace etprof;
using namespace etprof::testing;

constexpr std::uint32_t kProduct = 0;
constexpr std::uint32_t kOther = 1;

/// Calls by mark, microkernel and first size, of all threads together.
using Sums = std::map<std::tuple<std::uint32_t, std::uint32_t, std::uintptr_t>, std::uint64_t>;

Sums take_sums() {
    std::vector<KernelCalls> taken;
    check(take_kernel_calls(taken), "nothing is lost");
    Sums sums;
    for (const KernelCalls& some : taken) {
        sums[{some.mark, some.kernel, some.sizes[0]}] += some.calls;
    }
    return sums;
}

/// As an operator does: packing and product in turns, the last tile smaller.
void run_operator(std::uint64_t tiles) {
    for (std::uint64_t i = 0; i < tiles; ++i) {
        count_kernel_call(kOther, {});
        count_kernel_call(kProduct, {i + 1 == tiles ? 3u : 8u, 32, 64});
    }
}

TEST(calls_of_all_threads_are_counted_by_mark_kernel_and_sizes) {
    // GIVEN two operators, each run by three threads
    take_sums();
    for (const std::size_t mark : {std::size_t{4}, std::size_t{9}}) {
        set_mark_count(mark);
        std::vector<std::thread> threads;
        for (std::uint64_t tiles = 1000; tiles <= 3000; tiles += 1000) {
            threads.emplace_back(run_operator, tiles);
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
    const Sums expected = {{{4, kProduct, 3}, 3}, {{4, kProduct, 8}, 5997}, {{4, kOther, 0}, 6000},
                           {{9, kProduct, 3}, 3}, {{9, kProduct, 8}, 5997}, {{9, kOther, 0}, 6000}};
    check(take_sums() == expected, "each operator's calls");
    check(take_sums().empty(), "they are taken once");
}

TEST(a_thread_that_goes_on_begins_anew) {
    take_sums();
    set_mark_count(2);
    run_operator(5);
    take_sums();
    run_operator(1);
    const Sums expected = {{{0, kProduct, 3}, 1}, {{0, kOther, 0}, 1}};
    check(take_sums() == expected, "only what came after");
}

TEST(what_there_is_no_room_for_is_told) {
    // GIVEN more kinds of calls than any inference makes
    take_sums();
    for (std::uint32_t mark = 0; mark < 20'000; ++mark) {
        set_mark_count(mark);
        count_kernel_call(kOther, {});
    }
    std::vector<KernelCalls> taken;
    check(!take_kernel_calls(taken), "some are lost");
    check(take_sums().empty(), "the next inference has room");
}

}  // namespace
