#include "values.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/runner_error.h"
#include "check.h"
#include "scratch_folder.h"

namespace {

using namespace etprof;
using etprof::testing::ScratchFolder;

ValueDescription tensor(ScalarType dtype, std::vector<std::int32_t> shape, std::uint64_t size) {
    ValueDescription value;
    value.kind = "tensor";
    value.dtype = dtype;
    value.shape = shape;
    value.size_bytes = size;
    return value;
}

MethodDescription one_float_row() {
    MethodDescription method;
    method.name = "forward";
    method.inputs = {tensor(ScalarType::Float, {4, 2}, 32)};
    return method;
}

/// What `options` are refused with by a method that takes float32 4x2.
std::string refusal(const Options& options) {
    const auto error = CATCH(RunnerError, prepare_inputs(one_float_row(), options));
    CHECK(error.code() == ExitCode::kInput || error.code() == ExitCode::kUsage);
    return error.what();
}

template <typename T>
std::vector<T> seeded(ScalarType dtype, std::uint64_t seed) {
    AlignedBuffer bytes(1000 * sizeof(T));
    CHECK(fill_seeded(bytes, dtype, seed));
    std::vector<T> values(1000);
    std::memcpy(values.data(), bytes.data(), bytes.size_bytes());
    return values;
}

TEST(values_of_a_seed_are_the_same_every_time) {
    CHECK(seeded<float>(ScalarType::Float, 7) == seeded<float>(ScalarType::Float, 7));
    CHECK(seeded<float>(ScalarType::Float, 7) != seeded<float>(ScalarType::Float, 8));
}

TEST(values_of_a_seed_do_not_change_between_versions) {
    const std::vector<float> values = seeded<float>(ScalarType::Float, 0);
    CHECK_EQUAL(0.7666215896606445F, values[0]);
    CHECK_EQUAL(-0.13694405555725098F, values[1]);
}

TEST(values_that_are_floats_fill_minus_one_to_one) {
    for (const double value : seeded<double>(ScalarType::Double, 1)) {
        CHECK(value >= -1 && value < 1);
    }
    double sum = 0;
    for (const float value : seeded<float>(ScalarType::Float, 1)) {
        CHECK(value >= -1 && value < 1);
        sum += value;
    }
    CHECK(std::abs(sum) < 60);  // three standard deviations of 1000 uniform values
}

TEST(values_that_are_integers_are_zero_or_one) {
    bool seen[2] = {};
    for (const std::int64_t value : seeded<std::int64_t>(ScalarType::Long, 1)) {
        CHECK(value == 0 || value == 1);
        seen[value] = true;
    }
    CHECK(seen[0] && seen[1]);
    for (const std::uint8_t value : seeded<std::uint8_t>(ScalarType::Bool, 1)) {
        CHECK(value <= 1);
    }
}

TEST(values_cannot_be_made_up_for_packed_dtypes) {
    AlignedBuffer bytes(8);
    CHECK(!fill_seeded(bytes, ScalarType::Bits4x2, 0));
}

TEST(inputs_are_seeded_when_no_file_is_given) {
    const auto inputs = prepare_inputs(one_float_row(), Options());
    CHECK_EQUAL(1U, inputs.size());
    CHECK(!inputs[0].path);
    CHECK_EQUAL(32U, inputs[0].bytes.size_bytes());
}

TEST(inputs_come_from_files_byte_by_byte) {
    const ScratchFolder folder;
    Options options;
    const std::string content = "0123456789abcdef0123456789ABCDEF";
    options.input_paths = {folder.write("a.bin", content)};
    const auto inputs = prepare_inputs(one_float_row(), options);
    CHECK_EQUAL(0, std::memcmp(content.data(), inputs[0].bytes.data(), content.size()));
    CHECK_EQUAL(options.input_paths[0], *inputs[0].path);
}

TEST(inputs_of_the_wrong_size_are_refused) {
    const ScratchFolder folder;
    Options options;
    options.input_paths = {folder.write("a.bin", "short")};
    CHECK_EQUAL(options.input_paths[0] +
                    " has 5 bytes, but input 0 of 'forward' takes 32 bytes for float32 4x2: write "
                    "the tensor as raw little-endian values of that dtype and shape, or give its "
                    "shape: as --shapes to etprof-runner, or in a .npy file to etprof",
                refusal(options));
}

TEST(inputs_that_are_too_long_are_refused) {
    const ScratchFolder folder;
    Options options;
    options.input_paths = {folder.write("a.bin", std::string(33, '\0'))};
    CHECK(refusal(options).find(" has 33 bytes, but input 0 of 'forward' takes 32 bytes") !=
          std::string::npos);
}

TEST(inputs_have_the_type_that_is_told_with_the_shape) {
    Options options;
    options.shapes = {"float32:3x2"};
    CHECK_EQUAL("3x2", shape_text(prepare_inputs(one_float_row(), options)[0].value.shape));
    options.shapes = {"largest"};
    CHECK_EQUAL("4x2", shape_text(prepare_inputs(one_float_row(), options)[0].value.shape));
    options.shapes = {"int32:4x2"};
    CHECK_EQUAL(
        "input 0 of 'forward' takes float32 4x2, not int32 4x2: convert it, for instance with "
        "astype and reshape of NumPy",
        refusal(options));
}

TEST(inputs_in_another_order_than_told_are_refused) {
    MethodDescription method = one_float_row();
    method.inputs[0].dim_order = {1, 0};
    Options options;
    options.shapes = {"4x2"};
    CHECK_EQUAL(1U, prepare_inputs(method, options).size());
    options.shapes = {"float32:4x2"};
    const auto error = CATCH(RunnerError, prepare_inputs(method, options));
    CHECK_EQUAL(
        "input 0 of 'forward' does not have its dimensions in the order of NumPy: write the tensor "
        "as raw values in the order that --describe tells",
        std::string(error.what()));
}

TEST(inputs_of_booleans_are_zero_or_one) {
    const ScratchFolder folder;
    MethodDescription method;
    method.name = "forward";
    method.inputs = {tensor(ScalarType::Bool, {3}, 3)};
    Options options;
    options.input_paths = {folder.write("a.bin", std::string("\1\0\1", 3))};
    CHECK_EQUAL(3U, prepare_inputs(method, options)[0].bytes.size_bytes());
    folder.write("a.bin", std::string("\1\0\2", 3));
    const auto error = CATCH(RunnerError, prepare_inputs(method, options));
    CHECK_EQUAL(options.input_paths[0] +
                    " has bytes other than 0 and 1, but input 0 of 'forward' takes bool: write one "
                    "byte per value, 0 or 1",
                std::string(error.what()));
}

TEST(inputs_of_one_seed_differ_from_each_other) {
    MethodDescription method = one_float_row();
    method.inputs.push_back(method.inputs[0]);
    const auto inputs = prepare_inputs(method, Options());
    CHECK(std::memcmp(inputs[0].bytes.data(), inputs[1].bytes.data(), 32) != 0);
}

TEST(inputs_of_the_wrong_number_are_refused) {
    Options options;
    options.input_paths = {"a.bin", "b.bin"};
    CHECK_EQUAL(
        "--input has 2 values, but 'forward' takes 1 tensors: give one per tensor input, in order; "
        "etprof-runner --describe lists them",
        refusal(options));
}

TEST(inputs_that_are_missing_are_refused) {
    Options options;
    options.input_paths = {"/nowhere/a.bin"};
    CHECK_EQUAL(
        "cannot read /nowhere/a.bin (No such file or directory): give the input as a file that "
        "exists and can be read",
        refusal(options));
}

TEST(inputs_take_a_smaller_shape) {
    Options options;
    options.shapes = {"3x2"};
    const auto inputs = prepare_inputs(one_float_row(), options);
    CHECK_EQUAL(24U, inputs[0].bytes.size_bytes());
    CHECK_EQUAL("3x2", shape_text(inputs[0].value.shape));
}

TEST(inputs_take_scalar_as_the_shape_of_no_dimensions) {
    MethodDescription method = one_float_row();
    method.inputs.push_back(tensor(ScalarType::Double, {}, 8));
    Options options;
    options.shapes = {"3x2", "scalar"};
    const auto inputs = prepare_inputs(method, options);
    CHECK_EQUAL(8U, inputs[1].bytes.size_bytes());
    CHECK_EQUAL("scalar", shape_text(inputs[1].value.shape));
}

TEST(inputs_refuse_a_shape_beyond_the_largest) {
    Options options;
    for (const char* shape : {"5x2", "4", "4x2x1", "2147483647x2"}) {
        options.shapes = {shape};
        CHECK_EQUAL(std::string("input 0 of 'forward' cannot take the shape ") + shape +
                        ": its largest shape is 4x2",
                    refusal(options));
    }
}

TEST(inputs_refuse_a_shape_that_is_none) {
    Options options;
    for (const char* shape : {"", "x", "4x", "4xx2", "-1x2", "4,2", "99999999999x2"}) {
        options.shapes = {shape};
        CHECK_EQUAL(std::string("--shapes has '") + shape +
                        "': write a shape as sizes joined by x, such as 1x3x96x96, or scalar",
                    refusal(options));
    }
}

TEST(outputs_count_nan_and_infinity_in_every_float) {
    using Limits = std::numeric_limits<float>;
    const float floats[] = {1, Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), 0};
    CHECK_EQUAL(3U, count_nonfinite(floats, sizeof floats, ScalarType::Float));
    const double doubles[] = {1, std::nan(""), Limits::max()};
    CHECK_EQUAL(1U, count_nonfinite(doubles, sizeof doubles, ScalarType::Double));
    const std::uint16_t halves[] = {0x7BFF, 0x7C00, 0xFC00, 0x7E00};  // largest, inf, -inf, NaN
    CHECK_EQUAL(3U, count_nonfinite(halves, sizeof halves, ScalarType::Half));
    const std::uint16_t brains[] = {0x7F7F, 0x7F80, 0xFFC0};  // largest, inf, NaN
    CHECK_EQUAL(2U, count_nonfinite(brains, sizeof brains, ScalarType::BFloat16));
}

TEST(outputs_that_are_integers_are_always_finite) {
    const std::int32_t all_ones[] = {-1, -1};
    CHECK_EQUAL(0U, count_nonfinite(all_ones, sizeof all_ones, ScalarType::Int));
}

TEST(dtypes_have_the_names_of_numpy) {
    CHECK_EQUAL("float16", dtype_name(ScalarType::Half));
    CHECK_EQUAL("uint8", dtype_name(ScalarType::Byte));
    CHECK_EQUAL("uint16", dtype_name(ScalarType::UInt16));
    CHECK_EQUAL("bfloat16", dtype_name(ScalarType::BFloat16));
    CHECK_EQUAL("bool", dtype_name(ScalarType::Bool));
}

}  // namespace
