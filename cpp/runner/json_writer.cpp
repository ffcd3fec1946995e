#include "json_writer.h"

#include <cmath>
#include <cstdio>

namespace etprof {
namespace {

/// Length in bytes of the well-formed UTF-8 sequence (RFC 3629) that `text` starts with, or 0.
std::size_t utf8_length(std::string_view text) {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    const std::size_t length = lead < 0x80                    ? 1
                               : lead >= 0xC2 && lead <= 0xDF ? 2
                               : (lead & 0xF0) == 0xE0        ? 3
                               : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                              : 0;
    if (length > text.size()) {
        return 0;
    }
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) {
            return 0;
        }
    }
    const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
    const bool surrogate = lead == 0xED && byte(1) > 0x9F;
    const bool too_large = lead == 0xF4 && byte(1) > 0x8F;
    return overlong || surrogate || too_large ? 0 : length;
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
