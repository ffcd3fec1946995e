#include "runtime_log.h"

#include <executorch/runtime/platform/platform.h>

#include <cstdlib>
#include <mutex>

#include "runner_error.h"

namespace etprof {
namespace {

constexpr std::size_t kMostErrors = 16;

/// Kernels log from the threads of the pool.
std::mutex log_mutex;
std::vector<std::string> logged_errors;
std::string fatal_message;
void (*abort_handler)(const std::string&) = nullptr;

void keep_message(et_timestamp_t, et_pal_log_level_t level, const char*, const char*, std::size_t,
                  const char* message, std::size_t length) {
    const std::lock_guard<std::mutex> lock(log_mutex);
    length -= length > 0 && message[length - 1] == '.' ? 1 : 0;
    if (level == kFatal) {
        fatal_message.assign(message, length);
    } else if (level == kError && logged_errors.size() < kMostErrors) {
        logged_errors.emplace_back(message, length);
    }
}

void stop_process() {
    abort_handler(fatal_message);
    std::abort();
}

}  // namespace

void capture_runtime_log(void (*on_abort)(const std::string& reason)) {
    abort_handler = on_abort;
    executorch::runtime::register_pal(executorch::runtime::PalImpl::create(
        nullptr, stop_process, nullptr, nullptr, keep_message, nullptr, nullptr, __FILE__));
}

void clear_runtime_errors() {
    const std::lock_guard<std::mutex> lock(log_mutex);
    logged_errors.clear();
}

std::vector<std::string> runtime_errors() {
    const std::lock_guard<std::mutex> lock(log_mutex);
    return logged_errors;
}

std::string find_runtime_error(const std::string& part) {
    for (const std::string& error : runtime_errors()) {
        const std::size_t position = error.find(part);
        if (position != std::string::npos) {
            return error.substr(position);
        }
    }
    return "";
}

}  // namespace etprof
