#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "etdump/reader.h"

using etprof::EventTable;
using executorch::etdump::ETDumpGen;
using executorch::extension::Module;

namespace {

/// One inference of a real program, a portable Linear-Tanh-Linear, with all values logged.
struct Recording {
    std::vector<float> output;
    std::vector<std::uint8_t> debug_buffer;
    EventTable table;
};

Recording record(const std::string& program) {
    Recording recording;
    recording.debug_buffer.resize(1 << 16);
    auto owned = std::make_unique<ETDumpGen>();
    ETDumpGen& tracer = *owned;
    CHECK(tracer.set_debug_buffer({recording.debug_buffer.data(), recording.debug_buffer.size()})
              .ok());
    tracer.set_event_tracer_debug_level(
        executorch::runtime::EventTracerDebugLogLevel::kIntermediateOutputs);

    Module module(program, Module::LoadMode::File, std::move(owned));
    const auto input = executorch::extension::make_tensor_ptr(
        {1, 8}, std::vector<float>{-2.0f, -1.0f, -0.5f, 0.0f, 0.25f, 0.5f, 1.0f, 2.0f});
    const auto outputs = module.forward(*input);
    CHECK(outputs.ok());
    const auto tensor = outputs->at(0).toTensor();
    recording.output.assign(tensor.const_data_ptr<float>(),
                            tensor.const_data_ptr<float>() + tensor.numel());

    const auto dump = tracer.get_etdump_data();
    const std::unique_ptr<void, decltype(&std::free)> bytes(dump.buf, &std::free);
    recording.table = etprof::open_etdump(static_cast<const std::uint8_t*>(dump.buf), dump.size)
                          ->read(SIZE_MAX, "");
    return recording;
}

/// The values of the one float tensor that debug event `row` logged.
std::vector<float> values_of(const Recording& recording, std::size_t row) {
    const EventTable& table = recording.table;
    CHECK_EQUAL(1u, table.debug.tensor_count.at(row));
    const std::size_t tensor = table.debug.tensor_begin.at(row);
    CHECK_EQUAL(6, int{table.tensors.scalar_type.at(tensor)});
    std::int64_t count = 1;
    for (std::uint32_t i = 0; i < table.tensors.sizes_count.at(tensor); ++i) {
        count *= table.tensors.sizes.at(table.tensors.sizes_begin.at(tensor) + i);
    }
    std::vector<float> values(static_cast<std::size_t>(count));
    const auto offset = static_cast<std::size_t>(table.tensors.offset.at(tensor));
    CHECK(offset + values.size() * sizeof(float) <= recording.debug_buffer.size());
    std::memcpy(values.data(), recording.debug_buffer.data() + offset,
                values.size() * sizeof(float));
    return values;
}

const Recording& mlp() {
    static const Recording recording =
        record(std::string(std::getenv("ETPROF_PROGRAMS")) + "/mlp.pte");
    return recording;
}

}  // namespace

TEST(the_logged_output_is_the_output) {
    std::vector<std::size_t> outputs;
    for (std::size_t row = 0; row < mlp().table.debug.is_output.size(); ++row) {
        if (mlp().table.debug.is_output[row] == 1) {
            outputs.push_back(row);
        }
    }
    CHECK_EQUAL(1u, outputs.size());
    CHECK(values_of(mlp(), outputs[0]) == mlp().output);
}

TEST(every_instruction_logged_what_the_next_one_used) {
    // GIVEN the intermediate outputs in order of execution; one of them is tanh of the one before
    int found = 0;
    const std::size_t rows = mlp().table.debug.is_output.size();
    for (std::size_t row = 1; row < rows; ++row) {
        std::vector<float> expected = values_of(mlp(), row - 1);
        for (float& value : expected) {
            value = std::tanh(value);
        }
        const std::vector<float> values = values_of(mlp(), row);
        bool equal = values.size() == expected.size();
        for (std::size_t i = 0; equal && i < values.size(); ++i) {
            equal = std::abs(values[i] - expected[i]) < 1e-6f;
        }
        found += equal;
    }
    CHECK_EQUAL(1, found);
}

TEST(debug_events_stand_beside_the_profile_events_of_their_instruction) {
    const EventTable& table = mlp().table;
    CHECK(!table.debug.event_index.empty());
    for (std::size_t row = 0; row < table.debug.event_index.size(); ++row) {
        const std::uint32_t block = table.debug.block_index[row];
        CHECK_EQUAL(std::string("Execute"), table.names.at(table.blocks.name_id.at(block)));
        bool profiled = false;
        for (std::size_t other = 0; other < table.profile.event_index.size(); ++other) {
            profiled |= table.profile.block_index[other] == block &&
                        table.profile.instruction_id[other] == table.debug.instruction_id[row];
        }
        CHECK(profiled);
    }
}
