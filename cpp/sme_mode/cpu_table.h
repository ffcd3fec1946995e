#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "sme_mode/sme_mode.h"

namespace etprof {

/// The SME features of `cpuinfo_isa`, the table that XNNPACK asks, in its order (cpuinfo.h).
inline constexpr std::array<const char*, 7> kSmeFeatureNames = {
    "sme", "sme2", "sme2p1", "sme_i16i32", "sme_bi32i32", "sme_b16b16", "sme_f16f16"};
using SmeFeatures = std::array<bool, kSmeFeatureNames.size()>;

/// What the table says, and said before the switch.
struct CpuTable {
    /// Missing on processor families without SME.
    bool exists = false;
    /// Laid out as this runner knows it: it agreed with the operating system about the CPU.
    bool is_understood = true;
    /// Nobody had filled it, and so read it, before the switch.
    bool was_empty = true;
    SmeFeatures before{};
    SmeFeatures now{};
    std::optional<std::uint32_t> svl_bits;
    /// The mode that was applied before XNNPACK read the table.
    SmeMode applied = SmeMode::kAutomatic;
};

CpuTable read_cpu_table();

/// Takes out of the table what the mode on this command line hides. Runs by itself before XNNPACK's
/// initialisers, except with libraries that main loads (macOS), where it must be called first.
void apply_sme_mode(int count, char** words);

}  // namespace etprof
