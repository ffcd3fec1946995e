#include "files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/runner_error.h"

namespace etprof {
namespace {

[[noreturn]] void fail_to_write(const std::string& path, int error) {
    const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    throw RunnerError(ExitCode::kOutput, "cannot write " + path + " (" + std::strerror(error) + ")",
                      full ? "free some space or choose another disk"
                           : "choose a path in a folder that exists and can be written to");
}

std::string parent_folder(const std::filesystem::path& path) {
    // With a slash at its end, a path is its own folder.
    const bool has_slash = !path.has_filename();
    const auto folder = (has_slash ? path.parent_path() : path).parent_path().string();
    return folder.empty() ? "." : folder;
}

/// A name in the folder of `path` that nobody can foresee, so that no link or file waits there.
std::string temporary_name(const std::string& path) {
    std::uint64_t random = 0;
    if (getentropy(&random, sizeof random) != 0) {
        fail_to_write(path, errno);
    }
    return path + ".tmp" + std::to_string(random);
}

/// Gives what is at `path` a second name, and returns it; "" when nothing is there.
std::string set_aside(const std::string& path) {
    struct stat status{};
    if (lstat(path.c_str(), &status) != 0) {
        return "";
    }
    const std::string name = temporary_name(path);
    // A file system without second names has it moved, and the path empty for a moment.
    if (S_ISDIR(status.st_mode) ||
        (linkat(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), 0) != 0 &&
         std::rename(path.c_str(), name.c_str()) != 0)) {
        fail_to_write(path, S_ISDIR(status.st_mode) ? EISDIR : errno);
    }
    return name;
}

/// Closes the descriptor as well: some file systems report a full disk only then.
void write_all(int descriptor, const std::string& path, const char* data, std::size_t size_bytes) {
    int error = 0;
    while (size_bytes > 0 && error == 0) {
        const ssize_t written = write(descriptor, data, size_bytes);
        if (written >= 0) {
            data += written;
            size_bytes -= static_cast<std::size_t>(written);
        } else {
            // EINTR as well: only a signal that is to end the process brings it, see ResultFiles.
            error = errno;
        }
    }
    if (close(descriptor) != 0 && error == 0) {
        error = errno;
    }
    if (error != 0) {
        fail_to_write(path, error);
    }
}

volatile std::sig_atomic_t held_signal = 0;

extern "C" void hold_signal(int signal_number) {
    if (signal_number != SIGALRM) {
        held_signal = signal_number;
    }
    // A signal that came just before a call that waits did not interrupt it, so it is rung again.
    alarm(1);
}

}  // namespace

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

ResultFiles::ResultFiles() {
    held_signal = 0;
    struct sigaction action{};
    action.sa_handler = hold_signal;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
        sigaction(kSignals[i], &action, &previous_[i]);
        if (previous_[i].sa_handler == SIG_IGN && kSignals[i] != SIGALRM) {
            // As nohup asks for.
            sigaction(kSignals[i], &previous_[i], nullptr);
        }
    }
}

ResultFiles::~ResultFiles() {
    std::for_each(files_.rbegin(), files_.rend(), take_back);
    if (!new_folder_.empty()) {
        rmdir(new_folder_.c_str());
    }
    alarm(0);
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
        sigaction(kSignals[i], &previous_[i], nullptr);
    }
    if (held_signal != 0) {
        std::raise(held_signal);
    }
}

void ResultFiles::add_folder(const std::string& path) {
    std::error_code failure;
    if (mkdir(path.c_str(), 0777) == 0) {
        new_folder_ = path;
    } else if (!std::filesystem::is_directory(path, failure)) {
        fail_to_write(path, errno == EEXIST ? ENOTDIR : errno);
    }
}

void ResultFiles::add(const std::string& path, const void* data, std::size_t size_bytes) {
    // Devices and pipes are written to in place: renaming over them would replace them.
    struct stat status{};
    const bool is_in_place = stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
    // Where the bytes belong when it is a link, so that the link stays one.
    std::error_code failure;
    const std::filesystem::path real = std::filesystem::canonical(path, failure);
    const std::string place = is_in_place || failure ? path : real.string();
    const std::string opened_path = is_in_place ? path : temporary_name(place);
    const int flags = O_WRONLY | O_CLOEXEC | (is_in_place ? 0 : O_CREAT | O_EXCL | O_NOFOLLOW);
    const int descriptor = open(opened_path.c_str(), flags, 0666);
    if (descriptor < 0) {
        fail_to_write(path, errno);
    }
    if (!is_in_place) {
        files_.push_back({opened_path, place});
    } else if (fstat(descriptor, &status) != 0 || S_ISREG(status.st_mode)) {
        // A file has come in the place of the device, and would keep what is beyond our bytes.
        close(descriptor);
        fail_to_write(path, EEXIST);
    }
    write_all(descriptor, path, static_cast<const char*>(data), size_bytes);
}

void ResultFiles::commit() {
    for (File& file : files_) {
        file.previous_path = set_aside(file.path);
        if (std::rename(file.temporary_path.c_str(), file.path.c_str()) != 0) {
            fail_to_write(file.path, errno);
        }
        file.is_renamed = true;
    }
    for (const File& file : files_) {
        unlink(file.previous_path.c_str());
    }
    files_.clear();
    new_folder_.clear();
}

void ResultFiles::take_back(const File& file) {
    if (!file.is_renamed) {
        unlink(file.temporary_path.c_str());
    } else if (file.previous_path.empty()) {
        unlink(file.path.c_str());
    }
    if (!file.previous_path.empty()) {
        std::rename(file.previous_path.c_str(), file.path.c_str());
        // Two names of one file are both left by a renaming.
        unlink(file.previous_path.c_str());
    }
}

}  // namespace etprof
