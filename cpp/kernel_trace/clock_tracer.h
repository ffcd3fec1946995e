#pragma once

#include <executorch/runtime/core/event_tracer.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace etprof {

/// Hands ExecuTorch's events to the operator clock: executions, kernels outside delegates, and the
/// names that XNNPACK gives its operators. Everything else of an event tracer is left undone.
class ClockTracer final : public executorch::runtime::EventTracer {
 public:
    using DelegateId = executorch::runtime::DelegateDebugIntId;
    using Entry = executorch::runtime::EventTracerEntry;
    using Tensor = executorch::aten::Tensor;

    /// The texts behind the labels of marks.
    const std::vector<std::string>& labels() const { return labels_; }

    void create_event_block(const char*) override {}
    Entry start_profiling(const char* name, executorch::runtime::ChainID,
                          executorch::runtime::DebugHandle) override;
    void end_profiling(Entry entry) override;
    void log_profiling_delegate(const char* name, DelegateId, et_timestamp_t start,
                                et_timestamp_t end, const void*, size_t) override;

    Entry start_profiling_delegate(const char*, DelegateId) override { return {}; }
    void end_profiling_delegate(Entry, const void*, size_t) override {}
    void track_allocation(executorch::runtime::AllocatorID, size_t) override {}
    executorch::runtime::AllocatorID track_allocator(const char*) override { return 0; }
    void set_delegation_intermediate_output_filter(
        executorch::runtime::EventTracerFilterBase*) override {}
    executorch::runtime::Result<bool> log_evalue(const executorch::runtime::EValue&,
                                                 executorch::runtime::LoggedEValueType) override {
        return false;
    }
    executorch::runtime::Result<bool> log_intermediate_output_delegate(const char*, DelegateId,
                                                                       const Tensor&) override {
        return false;
    }
    executorch::runtime::Result<bool> log_intermediate_output_delegate(
        const char*, DelegateId, const executorch::runtime::ArrayRef<Tensor>) override {
        return false;
    }
    executorch::runtime::Result<bool> log_intermediate_output_delegate(const char*, DelegateId,
                                                                       const int&) override {
        return false;
    }
    executorch::runtime::Result<bool> log_intermediate_output_delegate(const char*, DelegateId,
                                                                       const bool&) override {
        return false;
    }
    executorch::runtime::Result<bool> log_intermediate_output_delegate(const char*, DelegateId,
                                                                       const double&) override {
        return false;
    }

 private:
    std::uint32_t find_label(std::string_view text);

    std::vector<std::string> labels_;
    std::unordered_map<std::string, std::uint32_t> label_by_text_;
    /// The label after each label, the last time: operators come in the same order every time.
    std::vector<std::uint32_t> next_label_;
    std::uint32_t last_label_ = 0;
};

}  // namespace etprof
