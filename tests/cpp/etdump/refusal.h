#pragma once

#include <cstdint>
#include <string>

#include "check.h"
#include "etdump/format_error.h"

/// The statement must throw FormatError with exactly this reason at exactly this offset.
#define CHECK_REFUSED(statement, reason, at)                         \
    do {                                                             \
        const auto error = CATCH(etprof::FormatError, statement);    \
        CHECK_EQUAL(std::string(reason), std::string(error.what())); \
        CHECK_EQUAL(static_cast<std::uint64_t>(at), error.offset()); \
    } while (false)
