#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "program_description.h"

namespace etprof {

/// How a method takes positions beside its tokens.
enum class PositionForm {
    /// One number: that of the first token.
    kStart,
    /// One number for each token.
    kEach,
};

/// A method that maps token ids and positions to the scores of the next token.
struct TokenMethod {
    const MethodDescription* description = nullptr;
    PositionForm positions = PositionForm::kStart;
    /// Tokens of one execution; the upper bound where the shape is dynamic.
    std::size_t most_tokens = 0;

    const std::string& name() const { return description->name; }
};

/// What to generate from, with which methods; checked against what the program tells of itself.
struct GenerationPlan {
    std::vector<std::int64_t> prompt;
    std::uint64_t new_tokens = 0;
    /// The same method as `decode` in a program that has only one.
    TokenMethod prefill;
    TokenMethod decode;
    /// Entries of the key-value cache, where the program tells.
    std::optional<std::uint64_t> cache_tokens;

    bool has_two_methods() const { return prefill.description != decode.description; }
};

/// Plans what --generate asks for.
///
/// Throws RunnerError: kMethod for a method that is missing or is no language model's, kInput for a
/// prompt that the program cannot take, kUsage for one that cannot be read. `program` must outlive
/// the plan.
GenerationPlan plan_generation(const ProgramDescription& program, const Options& options);

/// Reads ids separated by commas: `text` itself, or else the file of that name, where blanks and
/// line feeds separate as well.
std::vector<std::int64_t> read_prompt(const std::string& text);

}  // namespace etprof
