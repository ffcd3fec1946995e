#include "check.h"

#include <cstdio>
#include <map>

namespace etprof::testing {
namespace {

std::map<std::string, std::function<void()>>& tests() {
    static std::map<std::string, std::function<void()>> all;
    return all;
}

}  // namespace

Registration::Registration(const char* name, std::function<void()> body) {
    tests().emplace(name, std::move(body));
}

}  // namespace etprof::testing

int main(int argc, char** argv) {
    const auto found = etprof::testing::tests().find(argc > 1 ? argv[1] : "");
    if (found == etprof::testing::tests().end()) {
        std::fprintf(stderr, "name one test, as ctest does\n");
        return 2;
    }
    try {
        found->second();
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
    return 0;
}
