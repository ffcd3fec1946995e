#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace etprof {

/// What is wrong with a file as a whole; decides which way out the user is told.
enum class Fault {
    kEmpty,      ///< No bytes at all.
    kTruncated,  ///< Bytes are missing at the end.
    kNotEtdump,  ///< Something else than an ETDump.
    kDamaged,    ///< An ETDump whose contents contradict themselves.
};

/// The one exception of the reader: these bytes cannot be read as an ETDump.
class FormatError : public std::runtime_error {
 public:
    FormatError(Fault fault, std::uint64_t offset, const std::string& reason)
        : std::runtime_error(reason), fault_(fault), offset_(offset) {}

    Fault fault() const noexcept { return fault_; }

    /// Position of the offending bytes in the file.
    std::uint64_t offset() const noexcept { return offset_; }

 private:
    Fault fault_;
    std::uint64_t offset_;
};

}  // namespace etprof
