#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "runner_error.h"

namespace etprof {
namespace {

[[noreturn]] void fail_to_write(const std::string& path, int error) {
    const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    throw RunnerError(ExitCode::kOutput, "cannot write " + path + " (" + std::strerror(error) + ")",
                      full ? "free some space or choose another disk"
                           : "choose a path in a folder that exists and can be written to");
}

/// Devices and pipes are written to in place: renaming over them would replace them.
bool is_special(const std::string& path) {
    struct stat status{};
    return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

/// Where the bytes belong when `path` is a link, so that the link stays one.
std::string resolve_links(const std::string& path) {
    std::error_code failure;
    const std::filesystem::path real = std::filesystem::canonical(path, failure);
    return failure ? path : real.string();
}

std::string parent_folder(const std::filesystem::path& path) {
    // With a slash at its end, a path is its own folder.
    const bool has_slash = !path.has_filename();
    const auto folder = (has_slash ? path.parent_path() : path).parent_path().string();
    return folder.empty() ? "." : folder;
}

volatile std::sig_atomic_t held_signal = 0;

extern "C" void hold_signal(int signal_number) {
    held_signal = signal_number;
    // A signal that came just before a call that waits did not interrupt it, so it is rung again.
    alarm(1);
}

extern "C" void ring_again(int) { alarm(1); }

}  // namespace

AtomicFile::AtomicFile(std::string path, const void* data, std::size_t size_bytes)
    : path_(std::move(path)) {
    int flags = O_WRONLY | O_CLOEXEC;
    std::string opened_path = path_;
    if (!is_special(path_)) {
        path_ = resolve_links(path_);
        opened_path = temporary_path_ = path_ + ".tmp" + std::to_string(getpid());
        flags |= O_CREAT | O_TRUNC;
    }
    const int descriptor = open(opened_path.c_str(), flags, 0666);
    if (descriptor < 0) {
        temporary_path_.clear();
        fail_to_write(path_, errno);
    }
    try {
        write_all(descriptor, static_cast<const char*>(data), size_bytes);
    } catch (...) {
        unlink(temporary_path_.c_str());
        throw;
    }
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_path_(std::move(other.temporary_path_)) {
    other.temporary_path_.clear();
}

AtomicFile::~AtomicFile() {
    if (!temporary_path_.empty()) {
        unlink(temporary_path_.c_str());
    }
}

void AtomicFile::commit() {
    if (temporary_path_.empty()) {
        return;
    }
    if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
        fail_to_write(path_, errno);
    }
    temporary_path_.clear();
}

/// Closes the descriptor as well: some file systems report a full disk only then.
void AtomicFile::write_all(int descriptor, const char* data, std::size_t size_bytes) const {
    int error = 0;
    while (size_bytes > 0 && error == 0) {
        const ssize_t written = write(descriptor, data, size_bytes);
        if (written >= 0) {
            data += written;
            size_bytes -= static_cast<std::size_t>(written);
        } else {
            // EINTR as well: only a signal that is to end the process brings it, see SignalHold.
            error = errno;
        }
    }
    if (close(descriptor) != 0 && error == 0) {
        error = errno;
    }
    if (error != 0) {
        fail_to_write(path_, error);
    }
}

void require_writable(const std::string& path, bool is_folder) {
    struct stat status{};
    const bool exists = stat(path.c_str(), &status) == 0;
    if (exists && S_ISDIR(status.st_mode) != is_folder) {
        fail_to_write(path, is_folder ? ENOTDIR : EISDIR);
    }
    const bool is_place = exists && (is_folder || !S_ISREG(status.st_mode));
    const std::string place = is_place ? path : parent_folder(path) + "/.";
    if (access(place.c_str(), W_OK) != 0) {
        fail_to_write(path, errno);
    }
}

AtomicFolder::AtomicFolder(std::string path) : path_(std::move(path)) {
    is_new_ = mkdir(path_.c_str(), 0777) == 0;
    std::error_code failure;
    if (!is_new_ && !std::filesystem::is_directory(path_, failure)) {
        fail_to_write(path_, errno == EEXIST ? ENOTDIR : errno);
    }
}

AtomicFolder::~AtomicFolder() {
    if (is_new_) {
        rmdir(path_.c_str());
    }
}

SignalHold::SignalHold() {
    held_signal = 0;
    struct sigaction action{};
    action.sa_handler = ring_again;
    sigaction(SIGALRM, &action, &previous_alarm_);
    action.sa_handler = hold_signal;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
        sigaction(kSignals[i], &action, &previous_[i]);
        if (previous_[i].sa_handler == SIG_IGN) {
            // As nohup asks for.
            sigaction(kSignals[i], &previous_[i], nullptr);
        }
    }
}

SignalHold::~SignalHold() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
        sigaction(kSignals[i], &previous_[i], nullptr);
    }
    alarm(0);
    sigaction(SIGALRM, &previous_alarm_, nullptr);
    if (held_signal != 0) {
        std::raise(held_signal);
    }
}

}  // namespace etprof
