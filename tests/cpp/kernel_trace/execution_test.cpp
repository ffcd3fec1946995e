#include "kernel_trace/execution.h"

#include <string>

#include "check.h"

namespace {

using namespace etprof;
using namespace etprof::testing;

constexpr std::uint32_t kExecute = 0;
constexpr std::uint32_t kNative = 7;

/// Writes down what happens during one inference.
class Story {
 public:
    Story& at(std::uint64_t time_ns, MarkKind kind, std::uint32_t label = 0) {
        record_.marks.push_back({time_ns, kind, label});
        return *this;
    }

    Story& calls(std::uint32_t kernel, std::uint64_t count) {
        record_.calls.push_back({record_.marks.size(), {kernel, count}});
        return *this;
    }

    Execution read() const { return read_execution(record_); }

 private:
    ClockRecord record_;
};

/// A delegate with one operator of two hand-overs and one of a single one, then a native kernel.
Story usual_story() {
    Story story;
    story.at(100, MarkKind::kEventBegin, kExecute).at(110, MarkKind::kDelegateBegin);
    story.at(120, MarkKind::kBorder).at(130, MarkKind::kParallelBegin);
    story.at(140, MarkKind::kParallelEnd).at(150, MarkKind::kParallelBegin);
    story.at(190, MarkKind::kParallelEnd).calls(2, 5).at(200, MarkKind::kBorder);
    story.at(210, MarkKind::kParallelBegin).at(1'400, MarkKind::kParallelEnd);
    story.calls(2, 3).calls(4, 1).at(1'500, MarkKind::kBorder).at(1'510, MarkKind::kDelegateEnd);
    story.at(0, MarkKind::kOperatorName, 1).at(1'000, MarkKind::kOperatorName, 2);
    story.at(2'000, MarkKind::kEventBegin, kNative).at(2'010, MarkKind::kParallelBegin);
    story.at(2'050, MarkKind::kParallelEnd).at(2'060, MarkKind::kEventEnd, kNative);
    return story.calls(9, 2).at(2'100, MarkKind::kEventEnd, kExecute);
}

TEST(operators_start_at_their_first_hand_over_and_end_at_their_last) {
    const Execution execution = usual_story().read();
    check_equal(std::size_t{2}, execution.steps.size(), "one delegate and one kernel");
    const Step& delegate = execution.steps[0];
    check_equal(std::size_t{2}, delegate.works.size(), "operators of the delegate");
    check_equal(std::uint64_t{130}, delegate.works[0].start_ns, "start of the first");
    check_equal(std::uint64_t{190}, delegate.works[0].end_ns, "end of the first");
    check_equal(std::uint32_t{2}, delegate.works[0].parallel_calls, "hand-overs of the first");
    check_equal(std::uint64_t{1'190}, delegate.works[1].end_ns - delegate.works[1].start_ns,
                "duration of the second");
    check_equal(std::uint32_t{2}, delegate.operators[1].label, "name of the second");
}

TEST(microkernel_calls_belong_to_the_operator_that_ran) {
    const Execution execution = usual_story().read();
    const std::vector<Work>& works = execution.steps[0].works;
    check_equal(std::size_t{1}, works[0].kernels.size(), "kernels of the first");
    check_equal(std::uint64_t{5}, works[0].kernels[0].calls, "calls of the first");
    check_equal(std::size_t{2}, works[1].kernels.size(), "kernels of the second");
    check_equal(std::size_t{1}, execution.outside.size(), "after the last operator");
    check_equal(std::uint64_t{2}, execution.outside[0].calls, "calls outside");
}

TEST(kernels_outside_delegates_have_their_own_times) {
    const Step step = usual_story().read().steps[1];
    check(!step.is_delegate, "it is a kernel");
    check_equal(kNative, step.label, "its name");
    check_equal(std::uint64_t{2'000}, step.works[0].start_ns, "start");
    check_equal(std::uint64_t{2'060}, step.works[0].end_ns, "end");
}

TEST(an_operator_without_work_takes_no_time) {
    Story story;
    story.at(100, MarkKind::kEventBegin, kExecute).at(110, MarkKind::kDelegateBegin);
    story.at(120, MarkKind::kBorder).at(125, MarkKind::kBorder).at(130, MarkKind::kDelegateEnd);
    const Work work = story.at(140, MarkKind::kEventEnd, kExecute).read().steps[0].works[0];
    check_equal(work.start_ns, work.end_ns, "no duration");
    check_equal(std::uint64_t{125}, work.start_ns, "where it stands");
}

/// A delegate whose works end at the given times, in µs.
Step make_delegate(const std::vector<std::uint64_t>& ends_us,
                   const std::vector<std::uint64_t>& reported_us) {
    Step step;
    step.is_delegate = true;
    step.start_ns = 1'000'000;
    for (const std::uint64_t end_us : ends_us) {
        Work work;
        work.border_ns = step.start_ns + end_us * 1000;
        step.works.push_back(work);
    }
    for (const std::uint64_t duration_us : reported_us) {
        step.operators.push_back({0, duration_us * 1000});
    }
    return step;
}

std::string join(const std::vector<std::size_t>& counts) {
    std::string text;
    for (const std::size_t count : counts) {
        text += std::to_string(count);
    }
    return text;
}

TEST(works_of_a_concatenation_are_joined) {
    // GIVEN works of 5, 2, 3, 1 and 4 µs, the three in the middle one concatenation
    const Step step = make_delegate({5, 7, 10, 11, 15}, {5, 6, 4});
    check_equal(std::string("131"), join(match_works({&step}, {false, true, false})), "split");
}

TEST(several_executions_decide_between_splits) {
    // GIVEN one execution in which the third work took no time, and one in which it took 2 µs
    const Step first = make_delegate({5, 7, 7, 9}, {5, 2, 2});
    const Step second = make_delegate({5, 7, 9, 11}, {5, 2, 4});
    check_equal(std::string("112"), join(match_works({&first, &second}, {false, true, true})),
                "only this one fits both");
}

TEST(works_that_do_not_add_up_are_refused) {
    const Step step = make_delegate({5, 7}, {9});
    check(match_works({&step}, {true}).empty(), "7 µs are not 9");
}

}  // namespace
