// The switch: XNNPACK asks the table `cpuinfo_isa` once, while it is initialised, which kernels the
// CPU can run. What is taken out of the table before that is never chosen; what the table says
// afterwards is the proof of the mode in force.

#include "sme_mode/cpu_table.h"

#if !defined(__aarch64__)

namespace etprof {

// A processor family without SME has no such table, and nothing to switch.
CpuTable read_cpu_table() { return {}; }
void apply_sme_mode(int, char**) {}

}  // namespace etprof

#else

#include <cstddef>
#include <cstring>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#if __has_include(<cpuinfo.h>)
#include <cpuinfo.h>
#endif

// ExecuTorch's thread pool library exports both, but the SDK does not ship their header.
extern "C" {
/// The first members of struct cpuinfo_arm_isa on 64-bit Arm.
struct EtprofCpuTable {
    bool atomics, bf16, sve, sve2, i8mm;
    bool sme_features[etprof::kSmeFeatureNames.size()];
};
#if !defined(CPUINFO_ARCH_ARM64)
bool cpuinfo_initialize();
extern EtprofCpuTable cpuinfo_isa;
#else
// A source build has the header: a table that changed does not compile.
static_assert(offsetof(cpuinfo_arm_isa, sme) == offsetof(EtprofCpuTable, sme_features));
static_assert(offsetof(cpuinfo_arm_isa, sme_f16f16) == sizeof(EtprofCpuTable) - 1);
#endif
}

namespace etprof {
namespace {

// Constant-initialised, because they are written before any constructor of this file would run.
CpuTable table;

/// Asks the operating system about a feature of the CPU: by its name with sysctl, or by its bit of
/// AT_HWCAP2 (Linux's arch/arm64/include/uapi/asm/hwcap.h).
#if defined(__APPLE__)
std::uint32_t system_value(const char* name) {
    std::uint32_t value = 0;
    std::size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? value : 0;
}
bool system_has(const char* name, int) { return system_value(name) != 0; }
#else
bool system_has(const char*, int bit) { return (getauxval(AT_HWCAP2) >> bit & 1) != 0; }
#endif

bool agrees_with_system(const EtprofCpuTable& found) {
    return found.sme_features[0] == system_has("hw.optional.arm.FEAT_SME", 23) &&
           found.sme_features[1] == system_has("hw.optional.arm.FEAT_SME2", 37) &&
           found.i8mm == system_has("hw.optional.arm.FEAT_I8MM", 13) &&
           found.bf16 == system_has("hw.optional.arm.FEAT_BF16", 14);
}

std::optional<std::uint32_t> read_svl_bits() {
#if defined(__APPLE__)
    const std::uint32_t bytes = system_value("hw.optional.arm.sme_max_svl_b");
#else
    constexpr int kGetStreamingLength = 64;    // PR_SME_GET_VL
    constexpr std::uint32_t kLength = 0xFFFF;  // PR_SME_VL_LEN_MASK, bytes
    const int answer = prctl(kGetStreamingLength, 0, 0, 0, 0);
    const std::uint32_t bytes = answer <= 0 ? 0 : static_cast<std::uint32_t>(answer) & kLength;
#endif
    return bytes == 0 ? std::nullopt : std::make_optional(bytes * 8);
}

/// Reads `--sme MODE` or `--sme=MODE`; what it cannot read, the runner's own parser refuses.
SmeMode find_mode(int count, char** words) {
    SmeMode found = default_sme_mode();
    for (int i = 1; i < count; ++i) {
        const std::string_view word = words[i];
        std::optional<SmeMode> mode;
        if (word == "--sme" && i + 1 < count) {
            mode = parse_sme_mode(words[i + 1]);
        } else if (word.substr(0, 6) == "--sme=") {
            mode = parse_sme_mode(word.substr(6));
        }
        found = mode.value_or(found);
    }
    return found;
}

EtprofCpuTable& real_table() { return reinterpret_cast<EtprofCpuTable&>(cpuinfo_isa); }

SmeFeatures read_features() {
    SmeFeatures features;
    std::memcpy(features.data(), real_table().sme_features, sizeof features);
    return features;
}

}  // namespace

void apply_sme_mode(int count, char** words) {
    table.applied = find_mode(count, words);
    table.exists = true;
    // Every CPU with SME has atomics too.
    table.was_empty = !real_table().atomics;
    table.is_understood = cpuinfo_initialize() && agrees_with_system(real_table());
    table.before = read_features();
    if (!table.is_understood) {
        return;
    }
    bool* const features = real_table().sme_features;
    for (std::size_t i = 0; i < kSmeFeatureNames.size(); ++i) {
        // The first is FEAT_SME itself; all others came with or after SME2.
        const bool hidden =
            table.applied == SmeMode::kOff || (table.applied == SmeMode::kSme1 && i > 0);
        features[i] = features[i] && !hidden;
    }
}

CpuTable read_cpu_table() {
    CpuTable answer = table;
    answer.now = read_features();
    answer.svl_bits = answer.before[0] ? read_svl_bits() : std::nullopt;
    return answer;
}

#if defined(ETPROF_SME_BEFORE_LIBRARIES)
namespace {
void apply_first(int count, char** words, char** /*environment*/) { apply_sme_mode(count, words); }

// After relocation and before the constructors of every shared library.
__attribute__((section(".preinit_array"),
               used)) void (*const apply_before_libraries)(int, char**, char**) = apply_first;
}  // namespace
#elif defined(ETPROF_SME_BEFORE_OBJECTS)
namespace {
// XNNPACK is in this executable and has no priority; 101 is the first that programs may take.
__attribute__((constructor(101))) void apply_first(int count, char** words) {
    apply_sme_mode(count, words);
}
}  // namespace
#endif

}  // namespace etprof

#endif
