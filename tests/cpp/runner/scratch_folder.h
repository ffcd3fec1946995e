#pragma once

#include <filesystem>
#include <string>

namespace etprof::testing {

/// An empty folder that goes away with the object.
class ScratchFolder {
 public:
    ScratchFolder();
    ~ScratchFolder();

    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    std::string path(const std::string& name) const { return (folder_ / name).string(); }
    /// Writes a file and returns its path.
    std::string write(const std::string& name, const std::string& content) const;
    /// Number of files and folders at the top level.
    std::size_t count() const;

 private:
    std::filesystem::path folder_;
};

/// The content of a file; throws std::runtime_error when there is none.
std::string read_file(const std::string& path);

}  // namespace etprof::testing
