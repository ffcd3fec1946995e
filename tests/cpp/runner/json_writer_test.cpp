#include "base/json_writer.h"

#include <limits>

#include "check.h"

namespace {

using etprof::JsonWriter;

template <typename T>
std::string to_json(const T& value) {
    JsonWriter json;
    json.value(value);
    return json.take_text();
}

TEST(json_escapes_what_must_be_escaped) {
    CHECK_EQUAL("\"a\\\"b\\\\c\\u000ad\\u0009e\\u0000f\\u001fg\\u007f\"\n",
                to_json(std::string("a\"b\\c\nd\te\0f\x1Fg\x7F", 14)));
}

TEST(json_keeps_utf8_and_replaces_what_is_not) {
    CHECK_EQUAL("\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"\n",
                to_json("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
    CHECK_EQUAL("\"\\ufffd\"\n", to_json("\xFF"));
    CHECK_EQUAL("\"\\ufffd\\ufffd\"\n", to_json("\xC0\xAF"));             // overlong
    CHECK_EQUAL("\"\\ufffd\\ufffd\\ufffd\"\n", to_json("\xED\xA0\x80"));  // surrogate
    CHECK_EQUAL("\"\\ufffd\\ufffd\"\n", to_json("\xE2\x82"));             // cut short
}

TEST(json_numbers_keep_their_value) {
    CHECK_EQUAL("18446744073709551615\n", to_json(std::numeric_limits<std::uint64_t>::max()));
    CHECK_EQUAL("-9223372036854775808\n", to_json(std::numeric_limits<std::int64_t>::min()));
    CHECK_EQUAL(0.1, std::stod(to_json(0.1)));
    CHECK_EQUAL("true\n", to_json(true));
}

TEST(json_has_null_for_what_it_cannot_express) {
    CHECK_EQUAL("null\n", to_json(std::numeric_limits<double>::quiet_NaN()));
    CHECK_EQUAL("null\n", to_json(std::numeric_limits<double>::infinity()));
    CHECK_EQUAL("null\n", to_json(std::optional<int>()));
}

TEST(json_nests_objects_and_arrays) {
    JsonWriter json;
    json.begin_object();
    json.field("empty", std::vector<int>());
    json.field("numbers", std::vector<int>{1, 2});
    json.key("items");
    json.begin_array();
    json.begin_object();
    json.field("name", "a");
    json.end_object();
    json.begin_object();
    json.end_object();
    json.end_array();
    json.end_object();
    CHECK_EQUAL(
        "{\n  \"empty\": [],\n  \"numbers\": [1, 2],\n"
        "  \"items\": [{\n    \"name\": \"a\"\n  }, {}]\n}\n",
        json.take_text());
}

}  // namespace
