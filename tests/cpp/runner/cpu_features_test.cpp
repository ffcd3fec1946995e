#include "cpu_features.h"

#include <cstring>

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

TEST(cpu_sme2_is_bit_37_of_the_second_word) {
    const CpuFeatures features =
        decode_aarch64_features(1U << 1 | 1U << 20, 1ULL << 37 | 1ULL << 23 | 1ULL << 13);
    CHECK(has(features, "sme2") && has(features, "sme") && has(features, "i8mm"));
    CHECK(has(features, "asimd") && has(features, "dotprod"));
    CHECK(!has(features, "sme2p1") && !has(features, "sve") && !has(features, "bf16"));
}

TEST(cpu_without_sme_has_none_of_its_parts) {
    for (const auto& [name, present] : decode_aarch64_features(~0ULL, 0)) {
        CHECK(name.rfind("sme", 0) != 0 || !present);
    }
}

TEST(cpu_avx_counts_only_when_the_system_saves_its_registers) {
    X86Registers registers;
    registers.leaf1_ecx = registers.leaf7_ebx = registers.leaf7_ecx = registers.leaf7_edx =
        registers.leaf7_1_eax = ~0U;
    registers.xcr0 = 0;
    CHECK(has(decode_x86_features(registers), "sse4.2"));
    CHECK(!has(decode_x86_features(registers), "avx2"));
    registers.xcr0 = 0x7;
    CHECK(has(decode_x86_features(registers), "avx2"));
    CHECK(!has(decode_x86_features(registers), "avx512f"));
    registers.xcr0 = 0xE7;
    CHECK(has(decode_x86_features(registers), "avx512fp16"));
    CHECK(!has(decode_x86_features(registers), "amx_int8"));
    registers.xcr0 = 0x600E7;
    CHECK(has(decode_x86_features(registers), "amx_int8"));
}

TEST(cpu_auxiliary_vector_is_searched_by_type) {
    const std::uint64_t words[] = {3, 0x40, 16, 0xAB, 26, 0xCD, 0, 0};
    const std::string auxv(reinterpret_cast<const char*>(words), sizeof words);
    CHECK_EQUAL(0xABU, find_auxiliary_value(auxv, 16).value());
    CHECK_EQUAL(0xCDU, find_auxiliary_value(auxv, 26).value());
    CHECK(!find_auxiliary_value(auxv, 51));
    CHECK(!find_auxiliary_value(auxv.substr(0, 20), 16));
}

TEST(cpu_of_this_machine_is_described) {
    const CpuDescription cpu = describe_cpu();
    CHECK(cpu.architecture == "x86_64" || cpu.architecture == "aarch64");
    CHECK(cpu.logical_cores >= 1);
    CHECK(!cpu.model_name.empty() && !cpu.features.empty());
}

}  // namespace
