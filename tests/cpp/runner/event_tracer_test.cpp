// What a runner with event tracer does with --etdump; see bare_test.cpp for one without.

#include "check.h"
#include "runner_process.h"
#include "scratch_folder.h"

namespace {

using namespace etprof::testing;

/// Runs with --etdump, expects success and an ETDump with event blocks of these names.
void expect_etdump(std::vector<std::string> arguments, const std::vector<std::string>& blocks) {
    const ScratchFolder folder;
    const std::string path = folder.path("x.etdump");
    arguments.insert(arguments.end(), {"--etdump", path, "--result", folder.path("r.json")});
    const Finished finished = run_runner(arguments);
    CHECK_EQUAL("", finished.standard_error);
    CHECK_EQUAL(0, finished.exit_code);
    const std::string etdump = read_file(path);
    CHECK_EQUAL("ED00", etdump.substr(8, 4));
    for (const std::string& block : blocks) {
        CHECK(etdump.find(block) != std::string::npos);
    }
    CHECK_EQUAL("\"etdump\"", json_field(read_file(folder.path("r.json")), "pass"));
    CHECK_EQUAL(2U, folder.count());
}

TEST(event_tracer_writes_an_etdump) {
    expect_etdump({"--model", program("convolutions_fp32.pte")},
                  {"Default", "First", "Warmup", "Execute"});
}

TEST(event_tracer_keeps_the_prefill_of_a_generation_apart) {
    expect_etdump({"--model", program("lm_shared.pte"), "--generate=7", "--prompt-tokens=3,1,4,1",
                   "--iterations=2", "--warmup=1"},
                  {"First", "Warmup", "Execute", "Prefill"});
}

}  // namespace
