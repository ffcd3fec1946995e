#include "base/json_writer.h"

#include <cmath>
#include <cstdio>

namespace etprof {
namespace {

/// Length in bytes of the well-formed UTF-8 sequence (RFC 3629) that `text` starts with, or 0.
std::size_t utf8_length(std::string_view text) {
    constexpr std::uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if ((lead >= 0x80 && lead < 0xC0) || lead >= 0xF8 || more >= text.size()) {
        return 0;
    }
    std::uint32_t code = more == 0 ? lead : lead & (0x3FU >> more);
    for (const char next : text.substr(1, more)) {
        if ((next & 0xC0) != 0x80) {
            return 0;
        }
        code = code << 6 | (static_cast<std::uint32_t>(next) & 0x3F);
    }
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    return code < kLeast[more] || code > 0x10FFFF || surrogate ? 0 : more + 1;
}

std::string escape_ascii(char character) {
    if (character == '"' || character == '\\') {
        return {'\\', character};
    }
    if (static_cast<unsigned char>(character) >= 0x20 && character != 0x7F) {
        return {character};
    }
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(character));
    return code;
}

}  // namespace

void JsonWriter::key(std::string_view name) {
    text_ += (text_.back() == '{' ? "\n" : ",\n") + indent_;
    append_quoted(name);
    text_ += ": ";
}

void JsonWriter::value(double number) {
    if (!std::isfinite(number)) {
        return value(nullptr);
    }
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.17g", number);
    write_token(digits);
}

std::string JsonWriter::take_text() {
    text_ += "\n";
    return std::exchange(text_, {});
}

/// Nothing stands between values but in an array: a member's name ends with a space.
void JsonWriter::write_token(std::string_view token) {
    const char last = text_.empty() ? ' ' : text_.back();
    text_ += last == ' ' || last == '[' ? "" : ", ";
    text_ += token;
}

void JsonWriter::append_quoted(std::string_view text) {
    text_ += '"';
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (length == 0) {
            text_ += "\\ufffd";
        } else if (length == 1) {
            text_ += escape_ascii(text[0]);
        } else {
            text_ += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    text_ += '"';
}

}  // namespace etprof
