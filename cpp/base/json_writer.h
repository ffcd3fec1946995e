#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace etprof {

/// Writes one JSON document: each member of an object on a line of its own.
///
/// Strings may hold any bytes: what is not UTF-8 becomes U+FFFD. Numbers that JSON cannot express
/// become null.
class JsonWriter {
 public:
    void begin_object() {
        write_token("{");
        indent_ += "  ";
    }
    void end_object() {
        indent_.resize(indent_.size() - 2);
        text_ += text_.back() == '{' ? "}" : "\n" + indent_ + "}";
    }
    void begin_array() { write_token("["); }
    void end_array() { text_ += ']'; }

    /// Starts a member of the current object; a value has to follow.
    void key(std::string_view name);

    void value(std::nullptr_t) { write_token("null"); }
    void value(bool flag) { write_token(flag ? "true" : "false"); }
    void value(double number);
    void value(std::string_view text) {
        write_token("");
        append_quoted(text);
    }
    void value(const char* text) { value(std::string_view(text)); }

    template <typename Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
    void value(Integer number) {
        write_token(std::to_string(number));
    }

    template <typename T>
    void value(const std::optional<T>& maybe) {
        maybe ? value(*maybe) : value(nullptr);
    }

    template <typename T>
    void value(const std::vector<T>& items) {
        begin_array();
        for (const T& item : items) {
            value(item);
        }
        end_array();
    }

    /// One member of the current object.
    template <typename T>
    void field(std::string_view name, const T& content) {
        key(name);
        value(content);
    }

    /// Members of the current object: names and values in turn.
    template <typename T, typename... Rest>
    void fields(std::string_view name, const T& content, const Rest&... rest) {
        field(name, content);
        if constexpr (sizeof...(rest) > 0) {
            fields(rest...);
        }
    }

    /// A member that is an object of such members.
    template <typename... Fields>
    void object(std::string_view name, const Fields&... content) {
        key(name);
        begin_object();
        fields(content...);
        end_object();
    }

    /// A member that is an array of objects, whose members `write` writes for each of `items`.
    template <typename Items, typename Write>
    void objects(std::string_view name, const Items& items, Write write) {
        key(name);
        begin_array();
        for (const auto& item : items) {
            begin_object();
            write(item);
            end_object();
        }
        end_array();
    }

    /// The document, ended by a line feed. The writer is empty afterwards.
    std::string take_text();

 private:
    void write_token(std::string_view token);
    void append_quoted(std::string_view text);

    std::string text_;
    std::string indent_;
};

}  // namespace etprof
