// The least that runs a program: load, and call Module::forward in a loop.
//
// usage: bare_forward M.pte INPUT.bin DIMENSION... -- WARMUP ITERATIONS
// The input is float32 of that shape. Prints the latency of every timed call in ns, one per line.

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

std::vector<long> time_calls(Module& module, const executorch::extension::TensorPtr& input,
                             long count) {
    std::vector<long> latency_ns(static_cast<std::size_t>(count));
    for (long& sample : latency_ns) {
        const auto begin = Clock::now();
        const auto result = module.forward(input);
        const auto end = Clock::now();
        if (!result.ok()) {
            std::fprintf(stderr, "forward failed\n");
            std::exit(1);
        }
        sample = static_cast<long>((end - begin) / std::chrono::nanoseconds(1));
    }
    return latency_ns;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 6) {
        std::fprintf(stderr, "usage: bare_forward M.pte INPUT.bin DIMENSION... -- WARMUP COUNT\n");
        return 2;
    }
    std::vector<executorch::aten::SizesType> shape;
    int next = 3;
    for (; std::string(argv[next]) != "--" && next < argc - 3; ++next) {
        shape.push_back(std::atoi(argv[next]));
    }
    std::vector<char> bytes = read_file(argv[2]);
    const auto input = executorch::extension::make_tensor_ptr(shape, bytes.data());
    Module module(argv[1]);
    if (module.load_forward() != executorch::runtime::Error::Ok) {
        std::fprintf(stderr, "cannot load %s\n", argv[1]);
        return 1;
    }
    time_calls(module, input, std::atol(argv[next + 1]));
    for (const long sample : time_calls(module, input, std::atol(argv[next + 2]))) {
        std::printf("%ld\n", sample);
    }
    return 0;
}
