// What a runner with kernel trace does with --kernel-trace; ThreadSanitizer watches all of it.

#include "check.h"
#include "runner_process.h"
#include "scratch_folder.h"

namespace {

using namespace etprof::testing;

TEST(trace_of_two_threads_has_every_inference) {
    const ScratchFolder folder;
    const std::string trace = folder.path("k.json");
    const Finished finished =
        run_runner({"--model", program("convolutions_fp32.pte"), "--threads=2", "--warmup=2",
                    "--iterations=20", "--kernel-trace", trace, "--result", folder.path("r.json")});
    CHECK_EQUAL("", finished.standard_error);
    CHECK_EQUAL(0, finished.exit_code);
    const std::string result = read_file(folder.path("r.json"));
    CHECK_EQUAL("2", json_field(result, "in_force"));
    CHECK_EQUAL("\"kernel_trace\"", json_field(result, "pass"));
    const std::string document = read_file(trace);
    std::size_t inferences = 0;
    // Each hands work to the pool: an event with a delegate's call, and parallel work inside.
    for (std::size_t at = 0; (at = document.find("\"marks\": \"E", at)) != std::string::npos;
         ++at) {
        const std::string marks = document.substr(at, document.find('\n', at) - at);
        CHECK(marks.find('D') != std::string::npos && marks.find("Pp") != std::string::npos);
        ++inferences;
    }
    CHECK_EQUAL(1U + 2U + 20U, inferences);
}

}  // namespace
