#include "sme_mode/sme_mode.h"

#include <algorithm>
#include <string>

#include "check.h"
#include "sme_mode/hwcaps.h"

#ifdef __linux__
#include <sys/auxv.h>
#endif

namespace {

using namespace etprof;
using namespace etprof::testing;

std::string refusal(SmeMode mode) {
    return catch_error<SmeModeError>([mode] { require_sme_mode(mode); }, "require_sme_mode").what();
}

TEST(names_round_trip) {
    for (const char* name : {"auto", "sme2", "sme1", "off"}) {
        check_equal(std::string(name), std::string(to_string(*parse_sme_mode(name))), name);
    }
    check(!parse_sme_mode("SME2"), "names are lower case");
    check(!parse_sme_mode(""), "an empty name is none");
}

TEST(masks_cover_the_bits_of_linux) {
    // GIVEN the bits that Linux documents: SME 23 to 30, SME2 and later 37 to 42 and 57 to 62
    const std::uint64_t sme1 = std::uint64_t{0xFF} << 23;
    const std::uint64_t later = (std::uint64_t{0x3F} << 37) | (std::uint64_t{0x3F} << 57);
    check_equal(sme1 | later, sme_mask(kAtHwcap2, false), "all of AT_HWCAP2");
    check_equal(later, sme_mask(kAtHwcap2, true), "AT_HWCAP2 beyond SME1");
    check_equal(std::uint64_t{0x3F} << 42, sme_mask(kAtHwcap, true), "AT_HWCAP");
    check_equal(std::uint64_t{0x3} << 6, sme_mask(kAtHwcap3, true), "AT_HWCAP3");
}

#if defined(__linux__) && defined(__aarch64__)

bool has(const std::vector<std::string>& features, const char* name) {
    return std::find(features.begin(), features.end(), name) != features.end();
}

TEST(auto_changes_nothing) {
    getauxval(kAtHwcap2);
    const SmeReport report = require_sme_mode(SmeMode::kAutomatic);
    check(report.cpu_features == report.shown_features, "everything is shown");
    check(report.in_force != SmeMode::kAutomatic, "the mode in force is a real one");
}

TEST(sme1_hides_sme2_and_later) {
    const std::uint64_t shown = getauxval(kAtHwcap2);
    check_equal(std::uint64_t{0}, shown & sme_mask(kAtHwcap2, true), "no bit beyond SME1");
    const SmeReport report = require_sme_mode(SmeMode::kSme1);
    check(report.in_force == SmeMode::kSme1, "SME1 is in force");
    check(has(report.shown_features, "sme") && !has(report.shown_features, "sme2"), "only SME");
    check(has(report.cpu_features, "sme2"), "the CPU keeps its features");
}

TEST(off_hides_all_sme) {
    check_equal(std::uint64_t{0}, getauxval(kAtHwcap2) & sme_mask(kAtHwcap2, false), "no SME bit");
    check_equal(std::uint64_t{0}, getauxval(kAtHwcap) & sme_mask(kAtHwcap, false), "nor here");
    check(getauxval(kAtHwcap) != 0, "other features stay");
    const SmeReport report = require_sme_mode(SmeMode::kOff);
    check(report.in_force == SmeMode::kOff && report.shown_features.empty(), "SME is off");
}

TEST(compiled_out_gives_off_alone) {
    getauxval(kAtHwcap2);
    const SmeReport report = require_sme_mode(SmeMode::kAutomatic);
    check(report.in_force == SmeMode::kOff && report.shown_features.empty(), "SME is off");
    check(has(report.cpu_features, "sme2"), "the CPU keeps its features");
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
    check_equal(
        std::string("--sme off: no library asked this process's getauxval for CPU features, "
                    "so the mode has no effect; use --sme auto, or a build with SME "
                    "compiled out"),
        refusal(SmeMode::kOff), "nobody has asked for the features");
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
