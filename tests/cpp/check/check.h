#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

/// A test framework of one page: TEST registers, check.cpp's main runs the test named on the
/// command line, CTest knows every name (see CMakeLists.txt).
namespace etprof::testing {

struct Registration {
    Registration(const char* name, std::function<void()> body);
};

class CheckFailure : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

/// How a value reads in a failure's message.
template <typename T>
std::string show(const T& value) {
    std::ostringstream text;
    text.precision(17);
    text << value;
    return text.str();
}

template <typename Expected, typename Actual>
void check_equal(const Expected& expected, const Actual& actual, const std::string& where) {
    if (!(expected == actual)) {
        throw CheckFailure(where + ":\n  expected: " + show(expected) +
                           "\n  actual:   " + show(actual));
    }
}

inline void check(bool holds, const std::string& where) {
    if (!holds) {
        throw CheckFailure(where);
    }
}

/// Runs `action` and returns the message of the exception of type E that it must throw.
template <typename E>
E catch_error(const std::function<void()>& action, const std::string& where) {
    try {
        action();
    } catch (const E& error) {
        return error;
    }
    throw CheckFailure(where + ": nothing was thrown");
}

}  // namespace etprof::testing

#define TEST(name)                                                                      \
    static void test_##name();                                                          \
    static const etprof::testing::Registration registration_##name(#name, test_##name); \
    static void test_##name()

#define ETPROF_TEXT_(x) #x
#define ETPROF_TEXT(x) ETPROF_TEXT_(x)
#define WHERE(what) (__FILE__ ":" ETPROF_TEXT(__LINE__) ": " what)
#define CHECK(condition) etprof::testing::check((condition), WHERE(#condition))
#define CHECK_EQUAL(expected, actual) \
    etprof::testing::check_equal((expected), (actual), WHERE(#actual))
#define CATCH(Error, ...) \
    etprof::testing::catch_error<Error>([&] { __VA_ARGS__; }, WHERE(#__VA_ARGS__))
