#pragma once

#include <cstdint>
#include <string>
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

/// Asks the system. SME features are the machine's, whatever this process makes of them.
CpuDescription describe_cpu();

/// The features that matter here in a text such as Linux's /proc/cpuinfo, which lists the words of
/// those that CPU and system offer.
CpuFeatures find_features(const std::string& cpuinfo);

/// The model in such a text. Arm kernels print no name, only who made the core and which it is.
std::string find_model_name(const std::string& cpuinfo);

}  // namespace etprof
