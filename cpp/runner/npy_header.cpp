#include "npy_header.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace etprof {
namespace {

using executorch::aten::ScalarType;

constexpr std::string_view kMagic = "\x93NUMPY";

/// The text after `key` and a colon, without the spaces before it; "" when there is none.
std::string_view find_value(std::string_view header, std::string_view key) {
    const std::size_t begin = header.find(key);
    if (begin == std::string_view::npos) {
        return "";
    }
    header.remove_prefix(begin + key.size());
    const std::size_t value = header.find_first_not_of(" :");
    return value == std::string_view::npos ? "" : header.substr(value);
}

std::optional<ScalarType> parse_dtype(std::string_view text) {
    constexpr std::pair<std::string_view, ScalarType> kTypes[] = {
        {"|b1", ScalarType::Bool},         {"|u1", ScalarType::Byte},
        {"|i1", ScalarType::Char},         {"<i2", ScalarType::Short},
        {"<i4", ScalarType::Int},          {"<i8", ScalarType::Long},
        {"<u2", ScalarType::UInt16},       {"<u4", ScalarType::UInt32},
        {"<u8", ScalarType::UInt64},       {"<f2", ScalarType::Half},
        {"<f4", ScalarType::Float},        {"<f8", ScalarType::Double},
        {"<c8", ScalarType::ComplexFloat}, {"<c16", ScalarType::ComplexDouble},
    };
    for (const auto& [name, type] : kTypes) {
        if (text.substr(0, 1) == "'" &&
            text.substr(1, name.size() + 1) == std::string(name) + "'") {
            return type;
        }
    }
    return std::nullopt;
}

/// A tuple as Python prints it: "()", "(3,)", "(2, 3)".
std::optional<std::vector<std::int32_t>> parse_tuple(std::string_view text) {
    const std::size_t end = text.find(')');
    if (text.substr(0, 1) != "(" || end == std::string_view::npos) {
        return std::nullopt;
    }
    text = text.substr(1, end - 1);
    std::vector<std::int32_t> sizes;
    while (!text.empty()) {
        std::int32_t size = 0;
        const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), size);
        if (failure != std::errc{} || size < 0) {
            return std::nullopt;
        }
        sizes.push_back(size);
        text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
        const std::size_t next = text.find_first_not_of(", ");
        text.remove_prefix(next == std::string_view::npos ? text.size() : next);
    }
    return sizes;
}

/// Reads the length of the header, little-endian: two bytes, from version 2 on four.
std::optional<std::size_t> read_length(std::istream& file, std::size_t bytes) {
    constexpr std::size_t kMostBytes = 1 << 16;
    std::size_t length = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
        length |= static_cast<std::size_t>(file.get() & 0xFF) << 8 * i;
    }
    return file && length <= kMostBytes ? std::optional(length) : std::nullopt;
}

}  // namespace

bool is_npy(std::istream& file) {
    std::string magic(kMagic.size(), '\0');
    file.read(magic.data(), static_cast<std::streamsize>(magic.size()));
    const bool found = file && magic == kMagic;
    file.clear();
    file.seekg(0);
    return found;
}

std::optional<NpyHeader> read_npy_header(std::istream& file) {
    file.seekg(kMagic.size());
    const int version = file.get();
    file.get();
    const std::size_t length_bytes = version == 1 ? 2 : 4;
    const auto length = read_length(file, length_bytes);
    if (!length) {
        return std::nullopt;
    }
    std::string text(*length, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    const auto dtype = parse_dtype(find_value(text, "'descr'"));
    const auto shape = parse_tuple(find_value(text, "'shape'"));
    const std::string_view order = find_value(text, "'fortran_order'");
    if (!file || !dtype || !shape || order.empty()) {
        return std::nullopt;
    }
    return NpyHeader{*dtype, *shape, order.substr(0, 4) == "True",
                     kMagic.size() + 2 + length_bytes + *length};
}

}  // namespace etprof
