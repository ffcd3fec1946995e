#include "kernel_trace/clock_tracer.h"

#include <cstring>

#include "kernel_trace/operator_clock.h"

namespace etprof {
namespace {

constexpr char kKernelPrefix[] = "native_call_";
constexpr char kExecution[] = "Method::execute";

/// Containers of other events and load-time events tell the clock nothing.
bool is_wanted(const char* name) {
    return name != nullptr && (std::strncmp(name, kKernelPrefix, sizeof(kKernelPrefix) - 1) == 0 ||
                               std::strcmp(name, kExecution) == 0);
}

}  // namespace

ClockTracer::Entry ClockTracer::start_profiling(const char* name, executorch::runtime::ChainID,
                                                executorch::runtime::DebugHandle) {
    Entry entry{};
    entry.event_id = -1;
    if (is_wanted(name)) {
        entry.event_id = find_label(name);
        note(MarkKind::kEventBegin, static_cast<std::uint32_t>(entry.event_id));
    }
    return entry;
}

void ClockTracer::end_profiling(Entry entry) {
    if (entry.event_id >= 0) {
        note(MarkKind::kEventEnd, static_cast<std::uint32_t>(entry.event_id));
    }
}

void ClockTracer::log_profiling_delegate(const char* name, DelegateId, et_timestamp_t start,
                                         et_timestamp_t end, const void*, size_t) {
    note_operator_name(find_label(name == nullptr ? "" : name), end - start);
}

std::uint32_t ClockTracer::find_label(std::string_view text) {
    if (!labels_.empty() && labels_[next_label_[last_label_]] == text) {
        return last_label_ = next_label_[last_label_];
    }
    const auto [found, is_new] =
        label_by_text_.try_emplace(std::string(text), static_cast<std::uint32_t>(labels_.size()));
    if (is_new) {
        labels_.emplace_back(text);
        next_label_.push_back(0);
    }
    next_label_[last_label_] = found->second;
    return last_label_ = found->second;
}

}  // namespace etprof
