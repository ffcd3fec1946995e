#include "atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
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

std::string parent_folder(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

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

void require_writable(const std::string& path) {
    struct stat status{};
    if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
        fail_to_write(path, EISDIR);
    }
    const std::string place = is_special(path) ? path : parent_folder(path);
    if (access(place.c_str(), W_OK) != 0) {
        fail_to_write(path, errno);
    }
}

void require_writable_folder(const std::string& path) {
    std::error_code failure;
    std::filesystem::path place = std::filesystem::absolute(path, failure);
    while (!std::filesystem::exists(place, failure) && place.has_relative_path()) {
        place = place.parent_path();
    }
    if (!std::filesystem::is_directory(place, failure)) {
        fail_to_write(path, ENOTDIR);
    }
    if (access(place.c_str(), W_OK | X_OK) != 0) {
        fail_to_write(path, errno);
    }
}

AtomicFolder::AtomicFolder(std::string path) {
    std::error_code failure;
    std::filesystem::path missing = path;
    std::vector<std::string> wanted;
    while (!missing.empty() && !std::filesystem::exists(missing, failure)) {
        wanted.push_back(missing.string());
        missing = missing.parent_path();
    }
    for (auto folder = wanted.rbegin(); folder != wanted.rend(); ++folder) {
        if (mkdir(folder->c_str(), 0777) != 0 && errno != EEXIST) {
            const int error = errno;
            fail_to_write(path, error);
        }
        created_.push_back(*folder);
    }
    if (!std::filesystem::is_directory(path, failure)) {
        fail_to_write(path, ENOTDIR);
    }
}

AtomicFolder::~AtomicFolder() {
    for (auto folder = created_.rbegin(); folder != created_.rend(); ++folder) {
        rmdir(folder->c_str());
    }
}

}  // namespace etprof
