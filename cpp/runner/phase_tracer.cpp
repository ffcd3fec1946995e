#include "phase_tracer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace etprof {
namespace {

/// Beside its name; measured: files are 0.8 to 1.1 times the estimate.
constexpr std::size_t kEventBytes = 48;
/// Offsets in a FlatBuffer are signed 32-bit numbers; an eighth is left for the estimate's error.
constexpr std::size_t kMostBytes = (std::size_t{1} << 31) / 8 * 7;

/// Asks the system, because a compiler may take malloc's success for granted.
bool can_map(std::size_t size_bytes) {
    void* trial = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    return trial != MAP_FAILED && munmap(trial, size_bytes) == 0;
}

}  // namespace

bool PhaseTracer::has_room() {
    if (estimated_bytes_ <= roomy_bytes_) {
        return true;
    }
    // The finished file is one more copy of everything; the rest covers buffers that double.
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    const std::size_t next_bytes = estimated_bytes_ + std::max(estimated_bytes_ / 8, kMiB);
    if (estimated_bytes_ >= kMostBytes || !can_map(2 * next_bytes + 8 * kMiB)) {
        return false;
    }
    roomy_bytes_ = std::min(next_bytes, kMostBytes - 1);
    return true;
}

void PhaseTracer::open_block() {
    create_event_block("Execute");
    is_block_open_ = true;
}

void PhaseTracer::create_event_block(const char* name) {
    const bool is_execution = std::strcmp(name, "Execute") == 0;
    if (is_execution && is_block_open_) {
        is_block_open_ = false;
        return;
    }
    count_event(name, 0);
    ETDumpGen::create_event_block(is_execution ? phase_ : name);
}

PhaseTracer::Entry PhaseTracer::start_profiling(const char* name, ChainID chain_id,
                                                DebugHandle debug_handle) {
    count_event(name, 0);
    const Entry entry = ETDumpGen::start_profiling(name, chain_id, debug_handle);
    if (listener_ != nullptr) {
        listener_->start_profiling(name, chain_id, debug_handle);
    }
    return entry;
}

void PhaseTracer::end_profiling(Entry entry) {
    if (listener_ != nullptr) {
        listener_->end_profiling(entry);
    }
    ETDumpGen::end_profiling(entry);
}

PhaseTracer::Entry PhaseTracer::start_profiling_delegate(const char* name, DelegateId delegate_id) {
    count_event(name, 0);
    return ETDumpGen::start_profiling_delegate(name, delegate_id);
}

void PhaseTracer::log_profiling_delegate(const char* name, DelegateId delegate_id,
                                         et_timestamp_t start_time, et_timestamp_t end_time,
                                         const void* metadata, std::size_t metadata_len) {
    count_event(name, metadata_len);
    ETDumpGen::log_profiling_delegate(name, delegate_id, start_time, end_time, metadata,
                                      metadata_len);
    if (listener_ != nullptr) {
        listener_->log_profiling_delegate(name, delegate_id, start_time, end_time, metadata,
                                          metadata_len);
    }
}

void PhaseTracer::count_event(const char* name, std::size_t metadata_bytes) {
    estimated_bytes_ += kEventBytes + metadata_bytes + (name == nullptr ? 0 : std::strlen(name));
}

}  // namespace etprof
