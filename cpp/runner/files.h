#pragma once

#include <csignal>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace etprof {

/// Refuses, before anything is measured, a path that cannot become a file, or a folder.
void require_writable(const std::string& path, bool is_folder = false);

/// The files of a run, which appear together and whole, or not at all: they are written under
/// temporary names in their folders and renamed by commit(). Without it, or when it fails, they go
/// away with the object, as does a folder that was made for them, and what was there is again.
///
/// A path that is a device or pipe is written to directly, and a link stays one. Every failure is a
/// RunnerError (kOutput) that names the path; on a full disk too.
///
/// While it lives, SIGHUP, SIGINT and SIGTERM interrupt system calls that wait, and nothing else.
/// One that came ends the process after the object: what was half written is gone by then.
class ResultFiles {
 public:
    ResultFiles();
    ~ResultFiles();
    ResultFiles(const ResultFiles&) = delete;
    ResultFiles& operator=(const ResultFiles&) = delete;

    /// Makes a folder if it is missing; once.
    void add_folder(const std::string& path);
    void add(const std::string& path, const void* data, std::size_t size_bytes);
    void add(const std::string& path, std::string_view content) {
        add(path, content.data(), content.size());
    }
    void commit();

 private:
    static constexpr int kSignals[] = {SIGHUP, SIGINT, SIGTERM, SIGALRM};
    struct File {
        std::string temporary_path;
        std::string path;
        /// What was at `path` before commit(), under another name; "" when nothing was.
        std::string previous_path{};
        bool is_renamed = false;
    };
    static void take_back(const File& file);
    std::vector<File> files_;
    /// Empty when there is none to remove.
    std::string new_folder_;
    struct sigaction previous_[4]{};
};

}  // namespace etprof
