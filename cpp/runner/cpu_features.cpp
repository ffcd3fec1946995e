#include "cpu_features.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace etprof {
namespace {

/// Our names of features, each with the system's where that is another.
#if defined(__APPLE__)
constexpr char kArchitecture[] = "aarch64";
constexpr char kFeatures[] =
    "asimd=hw.optional.AdvSIMD fp16=hw.optional.arm.FEAT_FP16 "
    "dotprod=hw.optional.arm.FEAT_DotProd i8mm=hw.optional.arm.FEAT_I8MM "
    "bf16=hw.optional.arm.FEAT_BF16 sme=hw.optional.arm.FEAT_SME sme2=hw.optional.arm.FEAT_SME2 "
    "sme2p1=hw.optional.arm.FEAT_SME2p1";
#elif defined(__x86_64__)
constexpr char kArchitecture[] = "x86_64";
constexpr char kFeatures[] =
    "sse4.2=sse4_2 avx fma f16c avx2 avx_vnni avx512f avx512dq avx512bw avx512vl avx512vbmi "
    "avx512vnni=avx512_vnni avx512fp16=avx512_fp16 avx512bf16=avx512_bf16 amx_tile amx_int8 "
    "amx_bf16 amx_fp16";
#else
constexpr char kArchitecture[] = "aarch64";
constexpr char kFeatures[] =
    "asimd fp16=asimdhp dotprod=asimddp sve i8mm bf16 sve2 sve2p1 sme sme_i16i64=smei16i64 "
    "sme_f64f64=smef64f64 sme_i8i32=smei8i32 sme_f16f32=smef16f32 sme_b16f32=smeb16f32 "
    "sme_f32f32=smef32f32 sme_fa64=smefa64 sme2 sme2p1 sme_i16i32=smei16i32 "
    "sme_bi32i32=smebi32i32 sme_b16b16=smeb16b16 sme_f16f16=smef16f16";
#endif

std::vector<std::string> split_words(const std::string& text) {
    std::istringstream words(text);
    return {std::istream_iterator<std::string>(words), {}};
}

/// After an equals sign, or the whole of it.
std::string system_name(const std::string& feature) {
    return feature.substr(feature.find('=') + 1);
}

#if defined(__APPLE__)

/// The words of the features there are, and the model, as /proc/cpuinfo would have them.
std::string read_cpuinfo() {
    std::string words = "flags :";
    for (const std::string& feature : split_words(kFeatures)) {
        int present = 0;
        std::size_t size = sizeof present;
        const std::string name = system_name(feature);
        if (sysctlbyname(name.c_str(), &present, &size, nullptr, 0) == 0 && present != 0) {
            words += " " + name;
        }
    }
    char model[256] = "unknown";
    std::size_t size = sizeof model - 1;
    sysctlbyname("machdep.cpu.brand_string", model, &size, nullptr, 0);
    return words + "\nmodel name : " + model + "\n";
}

#else

std::string read_cpuinfo() {
    std::ifstream file("/proc/cpuinfo", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

#endif

/// The value after "key : " in the first such line, or "".
std::string find_value(const std::string& cpuinfo, const std::string& key) {
    const std::size_t line = cpuinfo.find(key);
    const std::size_t colon = cpuinfo.find(": ", line);
    if (line == std::string::npos || colon == std::string::npos) {
        return "";
    }
    return cpuinfo.substr(colon + 2, cpuinfo.find('\n', colon) - colon - 2);
}

}  // namespace

CpuFeatures find_features(const std::string& cpuinfo) {
    const auto words =
        split_words(find_value(cpuinfo, "flags") + " " + find_value(cpuinfo, "Features"));
    CpuFeatures features;
    for (const std::string& feature : split_words(kFeatures)) {
        const bool is_there =
            std::find(words.begin(), words.end(), system_name(feature)) != words.end();
        features.emplace_back(feature.substr(0, feature.find('=')), is_there);
    }
    return features;
}

std::string find_model_name(const std::string& cpuinfo) {
    const std::string name = find_value(cpuinfo, "model name");
    const std::string implementer = find_value(cpuinfo, "CPU implementer");
    const std::string part = find_value(cpuinfo, "CPU part");
    if (!name.empty() || implementer.empty() || part.empty()) {
        return name.empty() ? "unknown" : name;
    }
    return "implementer " + implementer + " part " + part;
}

CpuDescription describe_cpu() {
    const std::string cpuinfo = read_cpuinfo();
    return {kArchitecture, find_model_name(cpuinfo),
            static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)), find_features(cpuinfo)};
}

}  // namespace etprof
