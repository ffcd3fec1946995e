// What a runner without event tracer says of --etdump; see event_tracer_test.cpp for one with.

#include "check.h"
#include "runner_process.h"
#include "scratch_folder.h"

namespace {

using namespace etprof::testing;

TEST(bare_runner_refuses_an_etdump) {
    const ScratchFolder folder;
    const Finished finished =
        run_runner({"--model", program("mlp.pte"), "--result", folder.path("r.json"), "--etdump",
                    folder.path("x.etdump")});
    CHECK_EQUAL(
        "etprof-runner: --etdump is given, but this runner has no event tracer: use the runner of "
        "the preset without -bare in its name\n",
        finished.standard_error);
    CHECK_EQUAL(2, finished.exit_code);
    CHECK_EQUAL(0U, folder.count());
}

}  // namespace
