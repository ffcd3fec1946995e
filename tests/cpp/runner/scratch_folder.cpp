#include "scratch_folder.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace etprof::testing {

ScratchFolder::ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "etprof_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
        throw std::runtime_error("cannot make " + name);
    }
    folder_ = name;
}

ScratchFolder::~ScratchFolder() { std::filesystem::remove_all(folder_); }

std::string ScratchFolder::write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
}

std::size_t ScratchFolder::count() const {
    const std::filesystem::directory_iterator entries(folder_);
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error("there is no " + path);
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace etprof::testing
