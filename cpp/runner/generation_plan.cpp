#include "generation_plan.h"

#include <executorch/extension/module/module.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#include "runner_error.h"
#include "runtime_log.h"

namespace etprof {
namespace {

using executorch::extension::Module;

constexpr std::string_view kSeparators = ", \t\r\n";

bool has_method(const ProgramDescription& program, const std::string& name) {
    return std::any_of(program.methods.begin(), program.methods.end(),
                       [&name](const MethodDescription& method) { return method.name == name; });
}

/// Methods without inputs only tell a constant, such as get_max_seq_len.
std::string list_models(const ProgramDescription& program) {
    std::string names;
    for (const MethodDescription& method : program.methods) {
        if (!method.inputs.empty()) {
            names += (names.empty() ? "" : ", ") + method.name;
        }
    }
    return names;
}

const MethodDescription& find_method(const ProgramDescription& program, const std::string& name,
                                     const std::string& flag) {
    if (!has_method(program, name)) {
        throw RunnerError(ExitCode::kMethod, program.path + " has no method '" + name + "'",
                          "choose with " + flag + " from: " + list_models(program));
    }
    return program.find_method(name);
}

const MethodDescription& find_decode(const ProgramDescription& program, const Options& options) {
    const auto& chosen = options.generation.decode_method;
    const bool by_default = !chosen && has_method(program, "decode");
    return find_method(program, by_default ? "decode" : chosen.value_or("forward"),
                       "--decode-method");
}

const MethodDescription& find_prefill(const ProgramDescription& program, const Options& options,
                                      const MethodDescription& decode) {
    const auto& chosen = options.generation.prefill_method;
    if (!chosen && !has_method(program, "prefill")) {
        return decode;
    }
    return find_method(program, chosen.value_or("prefill"), "--prefill-method");
}

bool is_index(const ValueDescription& value) {
    return value.is_tensor() && (value.dtype == ScalarType::Long || value.dtype == ScalarType::Int);
}

bool is_score(const ValueDescription& value) {
    return value.is_tensor() && !value.shape.empty() &&
           (value.dtype == ScalarType::Float || value.dtype == ScalarType::Half ||
            value.dtype == ScalarType::BFloat16);
}

std::size_t count_elements(const ValueDescription& value) {
    std::size_t count = 1;
    for (const std::int32_t size : value.shape) {
        count *= static_cast<std::size_t>(size);
    }
    return count;
}

[[noreturn]] void refuse_signature(const MethodDescription& method, const std::string& problem) {
    throw RunnerError(ExitCode::kMethod,
                      "'" + method.name + "' cannot generate tokens (" + problem + ")",
                      "export it with a key-value cache, so that it takes token ids and positions "
                      "and gives scores");
}

TokenMethod describe_token_method(const MethodDescription& method) {
    if (method.inputs.size() != 2 ||
        !std::all_of(method.inputs.begin(), method.inputs.end(),
                     [](const auto& value) { return is_index(value); })) {
        refuse_signature(method, "it does not take two tensors of integers");
    }
    if (method.outputs.empty() || !is_score(method.outputs.front())) {
        refuse_signature(method, "its first output is no tensor of float32, float16 or bfloat16");
    }
    const ValueDescription& tokens = method.inputs[0];
    const std::size_t most = count_elements(tokens);
    if (tokens.shape.empty() || most != static_cast<std::size_t>(tokens.shape.back())) {
        refuse_signature(method, "its tokens have the shape " + shape_text(tokens.shape));
    }
    const std::size_t positions = count_elements(method.inputs[1]);
    if (method.inputs[1].shape.empty() || (positions != 1 && positions != most)) {
        refuse_signature(method,
                         "its positions have the shape " + shape_text(method.inputs[1].shape));
    }
    return {&method, positions == 1 ? PositionForm::kStart : PositionForm::kEach, most};
}

/// What a method without inputs says; nothing when there is none of that name.
std::optional<std::uint64_t> read_constant(const ProgramDescription& program,
                                           const std::string& name) {
    if (!has_method(program, name)) {
        return std::nullopt;
    }
    const MethodDescription& method = program.find_method(name);
    if (!method.inputs.empty() || method.outputs.size() != 1 || method.outputs[0].kind != "int") {
        return std::nullopt;
    }
    clear_runtime_errors();
    Module module(program.path, Module::LoadMode::Mmap);
    const auto result = module.execute(name);
    if (!result.ok() || result->at(0).toInt() < 1) {
        throw RunnerError(ExitCode::kModel, "'" + name + "' of " + program.path + " tells nothing",
                          "export the program again");
    }
    return static_cast<std::uint64_t>(result->at(0).toInt());
}

std::uint64_t count_vocabulary(const TokenMethod& method) {
    return static_cast<std::uint64_t>(method.description->outputs[0].shape.back());
}

void require_known_tokens(const GenerationPlan& plan) {
    const std::uint64_t vocabulary = count_vocabulary(plan.decode);
    for (const std::int64_t id : plan.prompt) {
        if (id < 0 || static_cast<std::uint64_t>(id) >= vocabulary) {
            throw RunnerError(ExitCode::kInput,
                              "--prompt-tokens has the id " + std::to_string(id) +
                                  ", but the model knows " + std::to_string(vocabulary) + " tokens",
                              "give ids from 0 to " + std::to_string(vocabulary - 1) +
                                  ", made by the model's own tokenizer");
        }
    }
}

/// The last new token is never read, so it needs no place.
void require_room(const GenerationPlan& plan) {
    const std::uint64_t needed = plan.prompt.size() + plan.new_tokens - 1;
    if (plan.cache_tokens && needed > *plan.cache_tokens) {
        throw RunnerError(ExitCode::kInput,
                          std::to_string(plan.prompt.size()) + " prompt tokens and " +
                              std::to_string(plan.new_tokens) + " new ones need " +
                              std::to_string(needed) + " places, but the cache has " +
                              std::to_string(*plan.cache_tokens),
                          "shorten the prompt, or lower --generate");
    }
}

/// ExecuTorch plans the buffers that methods share in a memory of their own, the second one.
bool has_shared_state(const GenerationPlan& plan) {
    const auto& prefill = plan.prefill.description->planned_buffers_bytes;
    const auto& decode = plan.decode.description->planned_buffers_bytes;
    return prefill.size() > 1 && decode.size() > 1 && prefill[1] > 0 && prefill[1] == decode[1];
}

void require_shared_cache(const GenerationPlan& plan, const ProgramDescription& program) {
    if (plan.has_two_methods() && !has_shared_state(plan)) {
        throw RunnerError(ExitCode::kMethod,
                          "'" + plan.prefill.name() + "' and '" + plan.decode.name() + "' of " +
                              program.path + " do not share their key-value cache",
                          "export it with share_mutable_buffers=True, as `etprof export` does, or "
                          "feed the prompt by decode steps: --prefill-method " +
                              plan.decode.name());
    }
}

bool is_list(const std::string& text) {
    return text.find_first_not_of("0123456789,-") == std::string::npos;
}

std::string read_text(const std::string& path) {
    require_file(path, "--prompt-tokens", ExitCode::kInput);
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::vector<std::int64_t> read_prompt(const std::string& text) {
    const std::string content = is_list(text) ? text : read_text(text);
    std::vector<std::int64_t> tokens;
    std::size_t next = content.find_first_not_of(kSeparators);
    while (next != std::string::npos) {
        const std::size_t end = std::min(content.find_first_of(kSeparators, next), content.size());
        const std::string word = content.substr(next, end - next);
        std::int64_t id = 0;
        const auto [stop, failure] = std::from_chars(word.data(), word.data() + word.size(), id);
        if (failure != std::errc{} || stop != word.data() + word.size()) {
            throw RunnerError(ExitCode::kInput, "--prompt-tokens has '" + word.substr(0, 40) + "'",
                              "give token ids as whole numbers, separated by commas");
        }
        tokens.push_back(id);
        next = content.find_first_not_of(kSeparators, end);
    }
    if (tokens.empty()) {
        throw RunnerError(ExitCode::kInput, "--prompt-tokens has no token",
                          "give at least one id, such as 1");
    }
    return tokens;
}

GenerationPlan plan_generation(const ProgramDescription& program, const Options& options) {
    const MethodDescription& decode = find_decode(program, options);
    GenerationPlan plan;
    plan.decode = describe_token_method(decode);
    plan.prefill = describe_token_method(find_prefill(program, options, decode));
    plan.prompt = read_prompt(options.generation.prompt_tokens);
    plan.new_tokens = options.generation.new_tokens;
    plan.cache_tokens = read_constant(program, "get_max_context_len");
    if (!plan.cache_tokens) {
        plan.cache_tokens = read_constant(program, "get_max_seq_len");
    }
    require_known_tokens(plan);
    require_room(plan);
    require_shared_cache(plan, program);
    return plan;
}

}  // namespace etprof
