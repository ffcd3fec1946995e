#include "cpu_features.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace etprof {
namespace {

struct BitName {
    unsigned bit;
    const char* name;
};

template <std::size_t N>
void append_bits(CpuFeatures& features, std::uint64_t word, const BitName (&names)[N]) {
    for (const BitName& entry : names) {
        features.emplace_back(entry.name, (word >> entry.bit & 1) != 0);
    }
}

#if defined(__APPLE__)

std::string read_sysctl_text(const char* name) {
    char text[256] = "";
    std::size_t size = sizeof text - 1;
    return sysctlbyname(name, text, &size, nullptr, 0) == 0 ? std::string(text) : "unknown";
}

CpuFeatures read_features() {
    constexpr BitName kNames[] = {{0, "AdvSIMD"}, {0, "FP16"}, {0, "DotProd"}, {0, "I8MM"},
                                  {0, "BF16"},    {0, "SME"},  {0, "SME2"},    {0, "SME2p1"}};
    constexpr const char* kOurs[] = {"asimd", "fp16", "dotprod", "i8mm",
                                     "bf16",  "sme",  "sme2",    "sme2p1"};
    CpuFeatures features;
    for (std::size_t i = 0; i < std::size(kOurs); ++i) {
        const std::string key =
            i == 0 ? "hw.optional.AdvSIMD" : std::string("hw.optional.arm.FEAT_") + kNames[i].name;
        int present = 0;
        std::size_t size = sizeof present;
        const bool known = sysctlbyname(key.c_str(), &present, &size, nullptr, 0) == 0;
        features.emplace_back(kOurs[i], known && present != 0);
    }
    return features;
}

std::string read_model_name() { return read_sysctl_text("machdep.cpu.brand_string"); }

#else

std::string read_file(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// The value after "key : " in the first such line of /proc/cpuinfo, or "".
std::string find_cpuinfo_value(const std::string& cpuinfo, const std::string& key) {
    const std::size_t line = cpuinfo.find(key);
    const std::size_t colon = cpuinfo.find(": ", line);
    if (line == std::string::npos || colon == std::string::npos) {
        return "";
    }
    return cpuinfo.substr(colon + 2, cpuinfo.find('\n', colon) - colon - 2);
}

/// Arm kernels print no model name, only who made the core and which of theirs it is.
std::string read_model_name() {
    const std::string cpuinfo = read_file("/proc/cpuinfo");
    const std::string name = find_cpuinfo_value(cpuinfo, "model name");
    if (!name.empty()) {
        return name;
    }
    const std::string implementer = find_cpuinfo_value(cpuinfo, "CPU implementer");
    const std::string part = find_cpuinfo_value(cpuinfo, "CPU part");
    if (implementer.empty() || part.empty()) {
        return "unknown";
    }
    return "implementer " + implementer + " part " + part;
}

#if defined(__x86_64__)

CpuFeatures read_features() {
    X86Registers registers;
    std::uint32_t eax = 0;
    std::uint32_t ebx = 0;
    std::uint32_t ecx = 0;
    std::uint32_t edx = 0;
    __get_cpuid(1, &eax, &ebx, &registers.leaf1_ecx, &edx);
    __get_cpuid_count(7, 0, &eax, &registers.leaf7_ebx, &registers.leaf7_ecx, &registers.leaf7_edx);
    __get_cpuid_count(7, 1, &registers.leaf7_1_eax, &ebx, &ecx, &edx);
    constexpr std::uint32_t kOsUsesXsave = 1U << 27;
    if (registers.leaf1_ecx & kOsUsesXsave) {
        std::uint32_t low = 0;
        std::uint32_t high = 0;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        registers.xcr0 = std::uint64_t{high} << 32 | low;
    }
    return decode_x86_features(registers);
}

#elif defined(__aarch64__)

/// The kernel's own words. getauxval is not asked, because a process may be told less by it.
CpuFeatures read_features() {
    constexpr std::uint64_t kHwcap = 16;   // AT_HWCAP
    constexpr std::uint64_t kHwcap2 = 26;  // AT_HWCAP2
    const std::string auxv = read_file("/proc/self/auxv");
    return decode_aarch64_features(find_auxiliary_value(auxv, kHwcap).value_or(0),
                                   find_auxiliary_value(auxv, kHwcap2).value_or(0));
}

#else

CpuFeatures read_features() { return {}; }

#endif
#endif

#if defined(__x86_64__)
constexpr const char* kArchitecture = "x86_64";
#elif defined(__aarch64__)
constexpr const char* kArchitecture = "aarch64";
#else
constexpr const char* kArchitecture = "unknown";
#endif

}  // namespace

CpuDescription describe_cpu() {
    return {kArchitecture, read_model_name(),
            static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)), read_features()};
}

CpuFeatures decode_x86_features(const X86Registers& registers) {
    constexpr std::uint64_t kYmmState = 0x6;
    constexpr std::uint64_t kZmmState = 0xE6;
    constexpr std::uint64_t kTileState = 0x60000;
    const auto saved = [&registers](std::uint64_t state) -> std::uint32_t {
        return (registers.xcr0 & state) == state ? ~0U : 0U;
    };
    const std::uint32_t ymm = saved(kYmmState);
    const std::uint32_t zmm = saved(kZmmState);
    const std::uint32_t tiles = saved(kTileState);
    CpuFeatures features;
    append_bits(features, registers.leaf1_ecx, {{20, "sse4.2"}});
    append_bits(features, registers.leaf1_ecx & ymm, {{28, "avx"}, {12, "fma"}, {29, "f16c"}});
    append_bits(features, registers.leaf7_ebx & ymm, {{5, "avx2"}});
    append_bits(features, registers.leaf7_1_eax & ymm, {{4, "avx_vnni"}});
    append_bits(features, registers.leaf7_ebx & zmm,
                {{16, "avx512f"}, {17, "avx512dq"}, {30, "avx512bw"}, {31, "avx512vl"}});
    append_bits(features, registers.leaf7_ecx & zmm, {{1, "avx512vbmi"}, {11, "avx512vnni"}});
    append_bits(features, registers.leaf7_edx & zmm, {{23, "avx512fp16"}});
    append_bits(features, registers.leaf7_1_eax & zmm, {{5, "avx512bf16"}});
    append_bits(features, registers.leaf7_edx & tiles,
                {{24, "amx_tile"}, {25, "amx_int8"}, {22, "amx_bf16"}});
    append_bits(features, registers.leaf7_1_eax & tiles, {{21, "amx_fp16"}});
    return features;
}

CpuFeatures decode_aarch64_features(std::uint64_t hwcap, std::uint64_t hwcap2) {
    CpuFeatures features;
    append_bits(features, hwcap, {{1, "asimd"}, {10, "fp16"}, {20, "dotprod"}, {22, "sve"}});
    append_bits(features, hwcap2,
                {{13, "i8mm"},
                 {14, "bf16"},
                 {1, "sve2"},
                 {36, "sve2p1"},
                 {23, "sme"},
                 {24, "sme_i16i64"},
                 {25, "sme_f64f64"},
                 {26, "sme_i8i32"},
                 {27, "sme_f16f32"},
                 {28, "sme_b16f32"},
                 {29, "sme_f32f32"},
                 {30, "sme_fa64"},
                 {37, "sme2"},
                 {38, "sme2p1"},
                 {39, "sme_i16i32"},
                 {40, "sme_bi32i32"},
                 {41, "sme_b16b16"},
                 {42, "sme_f16f16"}});
    return features;
}

std::optional<std::uint64_t> find_auxiliary_value(std::string_view auxv, std::uint64_t type) {
    std::uint64_t entry[2];
    for (; auxv.size() >= sizeof entry; auxv.remove_prefix(sizeof entry)) {
        std::memcpy(entry, auxv.data(), sizeof entry);
        if (entry[0] == type) {
            return entry[1];
        }
    }
    return std::nullopt;
}

}  // namespace etprof
