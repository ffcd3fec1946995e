#pragma once

#include <csignal>
#include <cstddef>
#include <string>
#include <string_view>

namespace etprof {

/// A file that appears whole or not at all: written under a temporary name in the same folder,
/// renamed by commit(). Without commit() the temporary goes away with the object.
///
/// A path that is a device or pipe is written to directly. Every failure is a RunnerError (kOutput)
/// that names the path; on a full disk too.
class AtomicFile {
 public:
    AtomicFile(std::string path, const void* data, std::size_t size_bytes);
    AtomicFile(std::string path, std::string_view content)
        : AtomicFile(std::move(path), content.data(), content.size()) {}
    ~AtomicFile();

    AtomicFile(AtomicFile&& other) noexcept;
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    AtomicFile& operator=(AtomicFile&&) = delete;

    void commit();

 private:
    void write_all(int descriptor, const char* data, std::size_t size_bytes) const;

    std::string path_;
    /// Empty when there is nothing to rename or remove.
    std::string temporary_path_;
};

/// Refuses, before anything is measured, a path that cannot become a file, or a folder.
void require_writable(const std::string& path, bool is_folder = false);

/// A folder that is made if it is missing, and goes away again unless commit() is called.
class AtomicFolder {
 public:
    explicit AtomicFolder(std::string path);
    ~AtomicFolder();

    AtomicFolder(const AtomicFolder&) = delete;
    AtomicFolder& operator=(const AtomicFolder&) = delete;

    void commit() { is_new_ = false; }

 private:
    std::string path_;
    bool is_new_ = false;
};

/// While it lives, SIGHUP, SIGINT and SIGTERM interrupt system calls that wait, and nothing else.
/// One that came ends the process when the hold does: what was half written is gone by then.
class SignalHold {
 public:
    SignalHold();
    ~SignalHold();

    SignalHold(const SignalHold&) = delete;
    SignalHold& operator=(const SignalHold&) = delete;

 private:
    static constexpr int kSignals[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction previous_[3]{};
    struct sigaction previous_alarm_{};
};

}  // namespace etprof
