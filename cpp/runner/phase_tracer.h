#pragma once

#include <executorch/devtools/etdump/etdump_flatcc.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace etprof {

/// The ETDump generator, with the executions of each phase in event blocks of their own name, and
/// a watch on its size: the generator itself neither reports a failed allocation nor survives it.
class PhaseTracer : public executorch::etdump::ETDumpGen {
 public:
    using ChainID = executorch::runtime::ChainID;
    using DebugHandle = executorch::runtime::DebugHandle;
    using DelegateId = executorch::runtime::DelegateDebugIntId;
    using Entry = executorch::runtime::EventTracerEntry;

    /// `listener` hears of everything that happens in executions, events in the order of their
    /// nesting with entries that are not its own; null when nobody listens.
    explicit PhaseTracer(std::unique_ptr<executorch::runtime::EventTracer> listener)
        : listener_(std::move(listener)) {}

    /// `name` is what the blocks of the executions from now on are called; it must outlive them.
    void set_phase(const char* name) { phase_ = name; }

    /// Opens the event block of the next execution, which so does not do it within its time.
    void open_block();

    /// Whether the ETDump so far could still be finished and grow by as much as one more execution.
    /// Asks the system only when the ETDump has grown by an eighth, and by a MiB, since it was last
    /// asked: this is within the time of a generation.
    bool has_room();

    void create_event_block(const char* name) override;
    Entry start_profiling(const char* name, ChainID chain_id, DebugHandle debug_handle) override;
    void end_profiling(Entry entry) override;
    Entry start_profiling_delegate(const char* name, DelegateId delegate_id) override;
    void log_profiling_delegate(const char* name, DelegateId delegate_id, et_timestamp_t start_time,
                                et_timestamp_t end_time, const void* metadata,
                                std::size_t metadata_len) override;

 private:
    void count_event(const char* name, std::size_t metadata_bytes);

    std::unique_ptr<executorch::runtime::EventTracer> listener_;
    const char* phase_ = "Execute";
    bool is_block_open_ = false;
    /// Close to the size of the file.
    std::size_t estimated_bytes_ = 0;
    /// There was found to be room up to this estimate.
    std::size_t roomy_bytes_ = 0;
};

}  // namespace etprof
