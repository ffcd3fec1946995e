#include "thread_pool.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

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
namespace {

/// The pool's library does not survive a thread that cannot be started, so they are tried before.
bool can_start(std::size_t count) {
    std::mutex gate;
    std::vector<std::thread> trial;
    bool started = true;
    {
        const std::lock_guard<std::mutex> closed(gate);
        try {
            while (trial.size() < count) {
                trial.emplace_back([&gate] { const std::lock_guard<std::mutex> passed(gate); });
            }
        } catch (const std::system_error&) {
            started = false;
        }
    }
    for (std::thread& thread : trial) {
        thread.join();
    }
    return started;
}

/// ExecuTorch makes a pool for all cores first, whatever is asked for then.
void require_threads(std::size_t threads) {
    threads = std::max<std::size_t>(threads, std::thread::hardware_concurrency());
    if (!can_start(threads - 1)) {
        throw RunnerError(ExitCode::kUsage,
                          std::to_string(threads) + " threads cannot be started here",
                          "ask for fewer with --threads, or raise the limit of processes");
    }
}

}  // namespace

std::size_t configure_thread_pool(std::optional<std::uint32_t> threads) {
    require_threads(threads.value_or(1));
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
