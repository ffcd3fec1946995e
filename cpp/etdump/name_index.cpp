#include "etdump/name_index.h"

#include "etdump/format_error.h"

namespace etprof {
namespace {

void charge(std::uint64_t& budget, std::uint64_t size, std::uint64_t at) {
    if (size > budget) {
        throw FormatError(Fault::kDamaged, at,
                          "strings overlap: together they claim more bytes than there are");
    }
    budget -= size;
}

}  // namespace

std::int32_t NameIndex::find_or_add(std::string_view name, std::uint64_t at) {
    const std::int32_t guess = previous_ < 0 ? -1 : successors_[previous_];
    if (guess >= 0 && names_[guess].data() == name.data()) {
        return previous_ = guess;
    }
    charge(read_budget_, name.size(), at);
    if (guess >= 0 && names_[guess] == name) {
        return previous_ = guess;
    }
    const auto [entry, is_new] =
        numbers_.try_emplace(name, static_cast<std::int32_t>(names_.size()));
    if (is_new) {
        charge(kept_budget_, name.size(), at);
        names_.push_back(name);
        successors_.push_back(-1);
    }
    if (previous_ >= 0) {
        successors_[previous_] = entry->second;
    }
    return previous_ = entry->second;
}

}  // namespace etprof
