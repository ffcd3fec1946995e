#include "cpu_features.h"

#include "check.h"

namespace {

using namespace etprof;

bool has(const CpuFeatures& features, const std::string& name) {
    for (const auto& [known, present] : features) {
        if (known == name) {
            return present;
        }
    }
    throw testing::CheckFailure("no feature is called " + name);
}

TEST(cpu_features_are_the_words_of_the_kernel) {
#if defined(__x86_64__)
    const CpuFeatures features =
        find_features("flags\t\t: fpu sse4_2 avx avx512_fp16\nbugs\t\t: avx2\n");
    CHECK(has(features, "sse4.2") && has(features, "avx") && has(features, "avx512fp16"));
    CHECK(!has(features, "avx2") && !has(features, "avx512f") && !has(features, "amx_int8"));
#elif !defined(__APPLE__)
    const CpuFeatures features = find_features(
        "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp asimddp i8mm sme smei8i32 sme2 \n");
    CHECK(has(features, "sme2") && has(features, "sme") && has(features, "sme_i8i32"));
    CHECK(has(features, "asimd") && has(features, "dotprod") && has(features, "fp16"));
    CHECK(!has(features, "sme2p1") && !has(features, "sve") && !has(features, "bf16"));
#endif
}

TEST(cpu_that_nobody_describes_has_no_features) {
    for (const auto& [name, present] : find_features("")) {
        CHECK(!present);
    }
    CHECK_EQUAL("unknown", find_model_name(""));
}

TEST(cpu_without_a_name_has_those_of_its_maker) {
    const std::string maker = "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
    CHECK_EQUAL("implementer 0x41 part 0xd0c", find_model_name(maker));
    CHECK_EQUAL("Arm N1", find_model_name("model name\t: Arm N1\n" + maker));
}

TEST(cpu_of_this_machine_is_described) {
    const CpuDescription cpu = describe_cpu();
    CHECK(cpu.architecture == "x86_64" || cpu.architecture == "aarch64");
    CHECK(cpu.logical_cores >= 1);
    CHECK(!cpu.model_name.empty() && !cpu.features.empty());
}

}  // namespace
