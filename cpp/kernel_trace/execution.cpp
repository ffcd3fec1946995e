#include "kernel_trace/execution.h"

#include <algorithm>

namespace etprof {
namespace {

constexpr std::uint64_t kNsPerMicrosecond = 1000;
/// XNN_MAX_OPERATOR_OBJECTS of XNNPACK's src/xnnpack/subgraph.h.
constexpr std::size_t kMostParts = 5;

/// Walks the marks of one inference in their order.
class MarkReader {
 public:
    explicit MarkReader(const ClockRecord& record) : record_(record) {}

    Execution read() {
        for (std::size_t i = 0; i < record_.marks.size(); ++i) {
            take_calls_before(i);
            read_mark(record_.marks[i]);
        }
        execution_.mark_count = record_.marks.size();
        add_calls(execution_.outside, pending_);
        return std::move(execution_);
    }

 private:
    void take_calls_before(std::size_t mark) {
        for (; next_calls_ < record_.calls.size() && record_.calls[next_calls_].mark == mark;
             ++next_calls_) {
            add_calls(pending_, {record_.calls[next_calls_].calls});
        }
    }

    void read_mark(const Mark& mark) {
        switch (mark.kind) {
            case MarkKind::kEventBegin:
                return begin_event(mark);
            case MarkKind::kEventEnd:
                return end_event(mark);
            case MarkKind::kDelegateBegin:
                return begin_delegate();
            case MarkKind::kDelegateEnd:
                return leave_work();
            case MarkKind::kBorder:
                return pass_border(mark);
            case MarkKind::kParallelBegin:
                return begin_parallel(mark);
            case MarkKind::kParallelEnd:
                work_.end_ns = mark.time_ns;
                return;
            case MarkKind::kOperatorName:
                if (!execution_.steps.empty() && execution_.steps.back().is_delegate) {
                    execution_.steps.back().operators.push_back({mark.label, mark.time_ns});
                }
                return;
        }
    }

    /// The first event is the execution itself; the others are kernels outside delegates.
    void begin_event(const Mark& mark) {
        if (event_depth_++ == 0) {
            execution_.start_ns = mark.time_ns;
            return;
        }
        leave_work();
        Step step;
        step.label = mark.label;
        step.start_ns = mark.time_ns;
        execution_.steps.push_back(std::move(step));
    }

    void end_event(const Mark& mark) {
        if (--event_depth_ == 0) {
            execution_.end_ns = mark.time_ns;
            return;
        }
        work_.start_ns = execution_.steps.back().start_ns;
        work_.end_ns = mark.time_ns;
        finish_work(mark.time_ns);
    }

    void begin_delegate() {
        leave_work();
        Step step;
        step.is_delegate = true;
        execution_.steps.push_back(std::move(step));
    }

    void begin_parallel(const Mark& mark) {
        if (work_.parallel_calls++ == 0) {
            work_.start_ns = mark.time_ns;
        }
    }

    void pass_border(const Mark& mark) {
        Step& step = execution_.steps.back();
        if (step.start_ns == 0) {
            step.start_ns = mark.time_ns;
            leave_work();
        } else {
            finish_work(mark.time_ns);
        }
    }

    void finish_work(std::uint64_t border_ns) {
        if (work_.parallel_calls == 0 && work_.end_ns == 0) {
            work_.start_ns = work_.end_ns = border_ns;
        }
        work_.border_ns = border_ns;
        work_.kernels = std::move(pending_);
        pending_.clear();
        execution_.steps.back().works.push_back(std::move(work_));
        work_ = {};
    }

    /// What ran since the last border belongs to no operator.
    void leave_work() {
        add_calls(execution_.outside, pending_);
        pending_.clear();
        work_ = {};
    }

    const ClockRecord& record_;
    Execution execution_;
    Work work_;
    std::vector<KernelCalls> pending_;
    std::size_t next_calls_ = 0;
    int event_depth_ = 0;
};

/// Whether works [begin, begin + count) of every sample add up to operator `index`.
bool adds_up(const std::vector<const Step*>& samples, std::size_t begin, std::size_t count,
             std::size_t index) {
    return std::all_of(samples.begin(), samples.end(), [&](const Step* step) {
        std::uint64_t microseconds = 0;
        std::uint64_t border_ns = begin == 0 ? step->start_ns : step->works[begin - 1].border_ns;
        for (std::size_t i = begin; i < begin + count; ++i) {
            microseconds += (step->works[i].border_ns - border_ns) / kNsPerMicrosecond;
            border_ns = step->works[i].border_ns;
        }
        return microseconds * kNsPerMicrosecond == step->operators[index].reported_ns;
    });
}

}  // namespace

void add_calls(std::vector<KernelCalls>& total, const std::vector<KernelCalls>& more) {
    for (const KernelCalls& calls : more) {
        const auto found = std::find_if(total.begin(), total.end(), [&](const KernelCalls& known) {
            return known.kernel == calls.kernel;
        });
        if (found == total.end()) {
            total.push_back(calls);
        } else {
            found->calls += calls.calls;
        }
    }
}

Execution read_execution(const ClockRecord& record) { return MarkReader(record).read(); }

std::vector<std::size_t> match_works(const std::vector<const Step*>& samples,
                                     const std::vector<bool>& may_have_parts) {
    const std::size_t works = samples.front()->works.size();
    const std::size_t operators = samples.front()->operators.size();
    if (works == operators) {
        return std::vector<std::size_t>(operators, 1);
    }
    // taken[o][w]: works that operator o takes when it ends before work w; 0 when it cannot.
    std::vector<std::vector<std::size_t>> taken(operators, std::vector<std::size_t>(works + 1, 0));
    for (std::size_t o = 0; o < operators; ++o) {
        for (std::size_t begin = o; begin < works; ++begin) {
            if (o == 0 ? begin != 0 : taken[o - 1][begin] == 0) {
                continue;
            }
            const std::size_t most = may_have_parts[o] ? kMostParts : 1;
            for (std::size_t count = 1; count <= most && begin + count <= works; ++count) {
                if (taken[o][begin + count] == 0 && adds_up(samples, begin, count, o)) {
                    taken[o][begin + count] = count;
                }
            }
        }
    }
    if (operators == 0 || taken[operators - 1][works] == 0) {
        return {};
    }
    std::vector<std::size_t> counts(operators);
    for (std::size_t o = operators, end = works; o-- > 0; end -= counts[o]) {
        counts[o] = taken[o][end];
    }
    return counts;
}

}  // namespace etprof
