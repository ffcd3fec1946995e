// Answers getauxval for the whole process, with the SME bits that the mode in force hides taken
// out. The executable's definition comes first in symbol lookup, so the CPU detection inside
// ExecuTorch's libraries gets this one.

#include "sme_mode/auxiliary_vector.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "sme_mode/hwcaps.h"

namespace etprof {
namespace {

struct Entry {
    unsigned long type;
    unsigned long value;
};

/// The kernel's auxiliary vector; about 20 entries, AT_NULL (0) ends it.
struct AuxiliaryVector {
    Entry entries[64] = {};

    AuxiliaryVector() {
        const int file = open("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
        if (file < 0) {
            return;
        }
        const ssize_t size = read(file, entries, sizeof(entries) - sizeof(Entry));
        close(file);
        // A short read leaves a part of an entry behind; it must not be taken for one.
        const std::size_t whole = size < 0 ? 0 : static_cast<std::size_t>(size) / sizeof(Entry);
        std::memset(entries + whole, 0, sizeof(entries) - whole * sizeof(Entry));
    }
};

const Entry* find_entry(unsigned long type) {
    static const AuxiliaryVector vector;
    for (const Entry* entry = vector.entries; entry->type != 0; ++entry) {
        if (entry->type == type) {
            return entry;
        }
    }
    return nullptr;
}

// Both are written before any thread exists or are atomic; constant-initialised, because
// getauxval is called before this file's constructors would run.
SmeMode chosen_mode = SmeMode::kAutomatic;
std::atomic<int> hwcap2_questions{0};

std::uint64_t hidden_bits(unsigned long type) {
    switch (chosen_mode) {
        case SmeMode::kOff:
            return sme_mask(type, false);
        case SmeMode::kSme1:
            return sme_mask(type, true);
        default:
            return 0;
    }
}

/// Reads `--sme MODE` or `--sme=MODE`; what it cannot read, the runner's own parser refuses.
void choose_mode(int count, char** words, char** /*environment*/) {
    chosen_mode = default_sme_mode();
    for (int i = 1; i < count; ++i) {
        const std::string_view word = words[i];
        std::optional<SmeMode> mode;
        if (word == "--sme" && i + 1 < count) {
            mode = parse_sme_mode(words[i + 1]);
        } else if (word.substr(0, 6) == "--sme=") {
            mode = parse_sme_mode(word.substr(6));
        }
        chosen_mode = mode.value_or(chosen_mode);
    }
}

// Runs before the constructors of every shared library.
__attribute__((section(".preinit_array"),
               used)) void (*const choose_mode_first)(int, char**, char**) = choose_mode;

}  // namespace

SmeMode mode_before_main() { return chosen_mode; }

std::uint64_t real_auxiliary_value(unsigned long type) {
    const Entry* entry = find_entry(type);
    return entry == nullptr ? 0 : entry->value;
}

std::uint64_t shown_auxiliary_value(unsigned long type) {
    return real_auxiliary_value(type) & ~hidden_bits(type);
}

int hwcap2_question_count() { return hwcap2_questions; }

}  // namespace etprof

extern "C" __attribute__((visibility("default"))) unsigned long getauxval(unsigned long type) {
    if (type == etprof::kAtHwcap2) {
        ++etprof::hwcap2_questions;
    }
    if (etprof::find_entry(type) == nullptr) {
        errno = ENOENT;
        return 0;
    }
    return etprof::shown_auxiliary_value(type);
}
