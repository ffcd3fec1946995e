#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace etprof {

/// Gives every distinct string a number, in order of first appearance.
///
/// An ETDump repeats the same strings in the same order with every inference, each time as new
/// bytes. So the guess is that what followed the last string before follows it again; only a wrong
/// guess costs a search, which takes logarithmic time for hostile strings too.
class NameIndex {
 public:
    /// `size_bytes` is the size of the file, which bounds both the bytes kept and those compared.
    explicit NameIndex(std::uint64_t size_bytes)
        : kept_budget_(size_bytes), read_budget_(kReadings * size_bytes) {}

    /// Returns the number of `name`, whose bytes must outlive the index. `at` is its position in
    /// the file, for the FormatError that ends the reading of overlapping strings.
    std::int32_t find_or_add(std::string_view name, std::uint64_t at);

    /// All strings, in the order of their numbers.
    const std::vector<std::string_view>& names() const { return names_; }

 private:
    /// Strings that do not overlap are read once; a writer that shares strings may need more.
    static constexpr std::uint64_t kReadings = 16;

    std::uint64_t kept_budget_;
    std::uint64_t read_budget_;
    std::int32_t previous_ = -1;
    std::vector<std::string_view> names_;
    std::vector<std::int32_t> successors_;
    std::map<std::string_view, std::int32_t> numbers_;
};

}  // namespace etprof
