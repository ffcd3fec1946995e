#include "thread_pool.h"

#include <string>

#include "runner_error.h"

// ExecuTorch exports these from its thread pool library, but the SDK does not ship their header.
namespace executorch::extension::threadpool {

class ThreadPool {
 public:
    std::size_t get_thread_count() const;
    bool _unsafe_reset_threadpool(std::uint32_t num_threads);
};

ThreadPool* get_threadpool();

}  // namespace executorch::extension::threadpool

namespace etprof {

std::size_t configure_thread_pool(std::optional<std::uint32_t> threads) {
    auto* pool = executorch::extension::threadpool::get_threadpool();
    if (pool == nullptr) {
        throw RunnerError(ExitCode::kInternal, "ExecuTorch has no thread pool here",
                          "check that this process may start threads");
    }
    if (threads && !pool->_unsafe_reset_threadpool(*threads)) {
        throw RunnerError(ExitCode::kUsage,
                          "--threads " + std::to_string(*threads) + " cannot be given here",
                          "ask for fewer threads");
    }
    return pool->get_thread_count();
}

}  // namespace etprof
