// The least that runs a program: load, and call Method::execute in a loop, with its input given
// anew outside of what is timed.
//
// usage: bare_execute M.pte INPUT.bin DIMENSION... -- WARMUP ITERATIONS AT_ONCE
// The input is float32 of that shape. Prints the latency of every iteration in ns, one per line:
// of one call, or of so many between two readings of the clock.

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using executorch::extension::Module;
using Clock = std::chrono::steady_clock;

std::vector<char> read_file(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Module keeps its methods to itself.
class BareModule : public Module {
 public:
    using Module::Module;
    executorch::runtime::Method& forward_method() { return *methods_.at("forward").method; }
};

std::vector<long> time_calls(executorch::runtime::Method& method,
                             const executorch::extension::TensorPtr& input, long count,
                             long at_once) {
    std::vector<long> latency_ns(static_cast<std::size_t>(count));
    for (long& sample : latency_ns) {
        const auto given = method.set_input(*input, 0);
        auto done = executorch::runtime::Error::Ok;
        // The runner reads the clock here too. Without it, what is left of copying the input
        // (stores that wait for the cache) is done in the time of the first call.
        [[maybe_unused]] volatile const auto given_at = Clock::now().time_since_epoch().count();
        const auto begin = Clock::now();
        for (long i = 0; i < at_once && done == executorch::runtime::Error::Ok; ++i) {
            done = method.execute();
        }
        const auto end = Clock::now();
        if (given != executorch::runtime::Error::Ok || done != executorch::runtime::Error::Ok) {
            std::fprintf(stderr, "forward failed\n");
            std::exit(1);
        }
        sample = static_cast<long>((end - begin) / std::chrono::nanoseconds(1)) / at_once;
    }
    return latency_ns;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7) {
        std::fprintf(stderr,
                     "usage: bare_execute M.pte INPUT.bin DIMENSION... -- WARMUP COUNT AT_ONCE\n");
        return 2;
    }
    std::vector<executorch::aten::SizesType> shape;
    int next = 3;
    for (; std::string(argv[next]) != "--" && next < argc - 4; ++next) {
        shape.push_back(std::atoi(argv[next]));
    }
    std::vector<char> bytes = read_file(argv[2]);
    const auto input = executorch::extension::make_tensor_ptr(shape, bytes.data());
    BareModule module(argv[1]);
    if (module.load_forward() != executorch::runtime::Error::Ok) {
        std::fprintf(stderr, "cannot load %s\n", argv[1]);
        return 1;
    }
    time_calls(module.forward_method(), input, std::atol(argv[next + 1]), 1);
    for (const long sample : time_calls(module.forward_method(), input, std::atol(argv[next + 2]),
                                        std::atol(argv[next + 3]))) {
        std::printf("%ld\n", sample);
    }
    return 0;
}
