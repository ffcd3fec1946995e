#pragma once

#include <cstdint>

namespace etprof {

/// One SME feature as Linux announces it to a process.
struct HwcapBit {
    const char* name;    ///< as in /proc/cpuinfo
    unsigned long type;  ///< entry of the auxiliary vector: AT_HWCAP, AT_HWCAP2, …
    int bit;
    bool belongs_to_sme1;  ///< whether a CPU with FEAT_SME alone may have it
};

inline constexpr unsigned long kAtHwcap = 16;
inline constexpr unsigned long kAtHwcap2 = 26;
inline constexpr unsigned long kAtHwcap3 = 29;

/// Every SME bit of Linux's arch/arm64/include/uapi/asm/hwcap.h (Linux 7.1), named as in
/// hwcap_str of arch/arm64/kernel/cpuinfo.c.
inline constexpr HwcapBit kSmeHwcaps[] = {
    {"sme", kAtHwcap2, 23, true},        {"smei16i64", kAtHwcap2, 24, true},
    {"smef64f64", kAtHwcap2, 25, true},  {"smei8i32", kAtHwcap2, 26, true},
    {"smef16f32", kAtHwcap2, 27, true},  {"smeb16f32", kAtHwcap2, 28, true},
    {"smef32f32", kAtHwcap2, 29, true},  {"smefa64", kAtHwcap2, 30, true},
    {"sme2", kAtHwcap2, 37, false},      {"sme2p1", kAtHwcap2, 38, false},
    {"smei16i32", kAtHwcap2, 39, false}, {"smebi32i32", kAtHwcap2, 40, false},
    {"smeb16b16", kAtHwcap2, 41, false}, {"smef16f16", kAtHwcap2, 42, false},
    {"smelutv2", kAtHwcap2, 57, false},  {"smef8f16", kAtHwcap2, 58, false},
    {"smef8f32", kAtHwcap2, 59, false},  {"smesf8fma", kAtHwcap2, 60, false},
    {"smesf8dp4", kAtHwcap2, 61, false}, {"smesf8dp2", kAtHwcap2, 62, false},
    {"sme2p2", kAtHwcap, 42, false},     {"smesbitperm", kAtHwcap, 43, false},
    {"smeaes", kAtHwcap, 44, false},     {"smesfexpa", kAtHwcap, 45, false},
    {"smestmop", kAtHwcap, 46, false},   {"smesmop4", kAtHwcap, 47, false},
    {"smelut6", kAtHwcap3, 6, false},    {"sme2p3", kAtHwcap3, 7, false},
};

inline constexpr int kSmeBit = 23;
inline constexpr int kSme2Bit = 37;

/// Returns the bits of one auxiliary-vector entry that stand for SME features; with
/// `beyond_sme1`, only those that a CPU with FEAT_SME alone does not have.
constexpr std::uint64_t sme_mask(unsigned long type, bool beyond_sme1) {
    std::uint64_t mask = 0;
    for (const HwcapBit& hwcap : kSmeHwcaps) {
        if (hwcap.type == type && !(beyond_sme1 && hwcap.belongs_to_sme1)) {
            mask |= std::uint64_t{1} << hwcap.bit;
        }
    }
    return mask;
}

}  // namespace etprof
