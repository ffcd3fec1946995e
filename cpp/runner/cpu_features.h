#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etprof {

/// Feature names and whether the CPU, and the system on it, offer them.
using CpuFeatures = std::vector<std::pair<std::string, bool>>;

/// The CPU this process runs on.
struct CpuDescription {
    std::string architecture;
    std::string model_name;
    std::uint32_t logical_cores;
    CpuFeatures features;
};

/// Asks the CPU or the kernel. SME features are the machine's, whatever this process makes of them.
CpuDescription describe_cpu();

/// The registers of CPUID and XGETBV that say which x86 features can be used.
struct X86Registers {
    std::uint32_t leaf1_ecx = 0;
    std::uint32_t leaf7_ebx = 0;
    std::uint32_t leaf7_ecx = 0;
    std::uint32_t leaf7_edx = 0;
    std::uint32_t leaf7_1_eax = 0;
    /// What the system saves on a context switch: 0 if it does not use XSAVE.
    std::uint64_t xcr0 = 0;
};

/// Intel's Software Developer's Manual, volume 2A, CPUID, and volume 1, 13.3 for XCR0.
CpuFeatures decode_x86_features(const X86Registers& registers);

/// The bits of AT_HWCAP and AT_HWCAP2 as in Linux's arch/arm64/include/uapi/asm/hwcap.h.
CpuFeatures decode_aarch64_features(std::uint64_t hwcap, std::uint64_t hwcap2);

/// The value of one entry of an auxiliary vector as /proc/self/auxv gives it; missing: not there.
std::optional<std::uint64_t> find_auxiliary_value(std::string_view auxv, std::uint64_t type);

}  // namespace etprof
