#include "sme_mode/sme_mode.h"

#include <algorithm>
#include <string>

#include "base/runner_error.h"
#include "check.h"

#ifdef __linux__
#include <sys/auxv.h>
#endif

namespace {

using namespace etprof;
using namespace etprof::testing;

std::string refusal(SmeMode mode) {
    return catch_error<RunnerError>([mode] { require_sme_mode(mode); }, "require_sme_mode").what();
}

TEST(names_round_trip) {
    for (const char* name : {"auto", "sme2", "sme1", "off"}) {
        check_equal(std::string(name), std::string(to_string(*parse_sme_mode(name))), name);
    }
    check(!parse_sme_mode("SME2"), "names are lower case");
    check(!parse_sme_mode(""), "an empty name is none");
}

#if defined(__linux__) && defined(__aarch64__)

bool has(const std::vector<std::string>& features, const char* name) {
    return std::find(features.begin(), features.end(), name) != features.end();
}

TEST(auto_changes_nothing) {
    const SmeReport report = require_sme_mode(SmeMode::kAutomatic);
    check(report.cpu_features == report.shown_features, "everything is shown");
    check(report.in_force == SmeMode::kSme2, "the emulated CPU has SME2");
    check(report.svl_bits.value_or(0) >= 128, "the vector length is known");
}

TEST(sme1_hides_sme2_and_later) {
    const SmeReport report = require_sme_mode(SmeMode::kSme1);
    check(report.in_force == SmeMode::kSme1, "SME1 is in force");
    check(report.shown_features == std::vector<std::string>{"sme"}, "only SME");
    check(has(report.cpu_features, "sme2"), "the CPU keeps its features");
    check(getauxval(AT_HWCAP2) >> 37 & 1, "nobody else is told less");
}

TEST(off_hides_all_sme) {
    const SmeReport report = require_sme_mode(SmeMode::kOff);
    check(report.in_force == SmeMode::kOff && report.shown_features.empty(), "SME is off");
    check(has(report.cpu_features, "sme2"), "the CPU keeps its features");
}

TEST(compiled_out_gives_off_alone) {
    const SmeReport report = require_sme_mode(SmeMode::kAutomatic);
    check(report.in_force == SmeMode::kOff && report.shown_features.empty(), "SME is off");
    const std::string way_out =
        ": SME is compiled out of this runner; use --sme off, or the runner of the preset without "
        "-off in its name";
    check_equal("--sme sme2" + way_out, refusal(SmeMode::kSme2), "sme2");
    check_equal("--sme sme1" + way_out, refusal(SmeMode::kSme1), "sme1");
}

TEST(the_flag_must_be_the_one_read_before_main) {
    check_equal(std::string("--sme sme1: the mode was not read before main; give --sme once, as "
                            "--sme=MODE"),
                refusal(SmeMode::kSme1), "another mode than on the command line");
}

#else

TEST(other_cpus_give_only_auto_and_off) {
    check(require_sme_mode(SmeMode::kOff).in_force == SmeMode::kOff, "off can be given");
    check(require_sme_mode(SmeMode::kAutomatic).in_force == SmeMode::kOff, "auto is off here");
    const std::string way_out =
        ": this runner is built for a CPU family without SME; use --sme off, an Arm CPU, or "
        "`etprof profile --target emulator`";
    check_equal("--sme sme2" + way_out, refusal(SmeMode::kSme2), "sme2");
    check_equal("--sme sme1" + way_out, refusal(SmeMode::kSme1), "sme1");
}

#endif

}  // namespace
