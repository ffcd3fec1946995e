#include "etdump/reader.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "contents.h"
#include "refusal.h"

using etprof::EventTable;
using etprof::Fault;
using etprof::FormatError;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// Reads a file that make_seeds.py wrote.
Bytes load_seed(const std::string& name) {
    const std::string path = std::string(std::getenv("ETPROF_SEEDS")) + "/" + name + ".etdump";
    std::ifstream file(path, std::ios::binary);
    Bytes bytes{std::istreambuf_iterator<char>(file), {}};
    if (bytes.empty()) {
        throw std::runtime_error("cannot read " + path);
    }
    return bytes;
}

/// Reads a copy that ends where its allocation ends, where sanitizers see any byte more.
EventTable read(const Bytes& bytes) {
    const std::unique_ptr<std::uint8_t[]> exact(new std::uint8_t[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), exact.get());
    return etprof::open_etdump(exact.get(), bytes.size())->read(SIZE_MAX, "");
}

/// Reads bytes that may be anything, whole and in pieces; returns whether they were an ETDump.
bool survives(const Bytes& bytes) {
    bool is_sound = false;
    try {
        read(bytes);
        is_sound = true;
        const auto in_pieces = [&bytes](std::size_t rows, const char* last) {
            return read_pieces(*etprof::open_etdump(bytes.data(), bytes.size()), rows, last);
        };
        const Contents whole = in_pieces(SIZE_MAX, "");
        CHECK(in_pieces(1, "Method::execute") == whole);
        CHECK(in_pieces(2, "DELEGATE_CALL") == whole);
        return true;
    } catch (const FormatError& error) {
        CHECK(error.offset() <= bytes.size());
        CHECK(*error.what() != '\0');
        CHECK(!is_sound);
        return false;
    }
}

const std::string& name(const EventTable& table, std::int32_t id) {
    return table.names.at(static_cast<std::size_t>(id));
}

}  // namespace

TEST(blocks_and_allocators_are_read) {
    const EventTable table = read(load_seed("everything"));
    CHECK_EQUAL(1u, table.version);
    CHECK_EQUAL(2u, table.blocks.name_id.size());
    CHECK_EQUAL("Execute", name(table, table.blocks.name_id[1]));
    CHECK_EQUAL(-1, table.blocks.bundled_input_index[0]);
    CHECK_EQUAL(9, table.blocks.bundled_input_index[1]);
    CHECK_EQUAL(1, table.blocks.event_begin[1]);
    CHECK_EQUAL(6, table.blocks.event_end[1]);
    CHECK_EQUAL(1u, table.allocators.block_index[0]);
    CHECK_EQUAL("planned", name(table, table.allocators.name_id[0]));
    CHECK_EQUAL(etprof::kMissing, table.allocators.name_id[1]);
}

TEST(profile_events_are_read) {
    const Bytes bytes = load_seed("everything");
    const EventTable table = read(bytes);
    const etprof::ProfileColumns& profile = table.profile;
    CHECK_EQUAL(2u, profile.name_id.size());
    CHECK_EQUAL("Method::init", name(table, profile.name_id[0]));
    CHECK_EQUAL(-1, profile.instruction_id[0]);
    CHECK_EQUAL(-1, profile.delegate_debug_id_int[0]);
    CHECK_EQUAL(etprof::kMissing, profile.delegate_debug_id_str_id[0]);
    CHECK_EQUAL(0u, profile.metadata_offset[0]);
    CHECK_EQUAL("DELEGATE_CALL", name(table, profile.name_id[1]));
    CHECK_EQUAL(1u, profile.block_index[1]);
    CHECK_EQUAL(2u, profile.event_index[1]);
    CHECK_EQUAL(1, profile.chain_index[1]);
    CHECK_EQUAL(2, profile.instruction_id[1]);
    CHECK_EQUAL(3, profile.delegate_debug_id_int[1]);
    CHECK_EQUAL("GEMM #1", name(table, profile.delegate_debug_id_str_id[1]));
    CHECK_EQUAL(100u, profile.start_time[1]);
    CHECK_EQUAL(250u, profile.end_time[1]);
    CHECK_EQUAL(3u, profile.metadata_size[1]);
    CHECK_EQUAL(3, bytes.at(profile.metadata_offset[1] + 2));
}

TEST(allocation_events_are_read) {
    const EventTable table = read(load_seed("everything"));
    CHECK_EQUAL(1u, table.allocations.event_index.at(0));
    CHECK_EQUAL(1, table.allocations.allocator_id.at(0));
    CHECK_EQUAL(4096u, table.allocations.size_bytes.at(0));
}

TEST(debug_events_are_read) {
    const EventTable table = read(load_seed("everything"));
    const etprof::DebugColumns& debug = table.debug;
    CHECK_EQUAL(2u, debug.name_id.size());
    CHECK_EQUAL("add", name(table, debug.name_id[0]));
    CHECK_EQUAL("\xff", name(table, debug.delegate_debug_id_str_id[0]));
    CHECK_EQUAL(4u, debug.chain_index[0]);
    CHECK_EQUAL(5, debug.value_type[0]);
    CHECK_EQUAL(0xff, debug.value_fields[0]);
    CHECK_EQUAL(-5, debug.int_value[0]);
    CHECK_EQUAL(0.5f, debug.float_value[0]);
    CHECK_EQUAL(0.25, debug.double_value[0]);
    CHECK_EQUAL(1, debug.bool_value[0]);
    CHECK_EQUAL(1, debug.is_output[0]);
    CHECK_EQUAL(3u, debug.tensor_count[0]);
    CHECK_EQUAL(-1, debug.value_type[1]);
    CHECK_EQUAL(-1, debug.is_output[1]);
    CHECK_EQUAL(3u, debug.tensor_begin[1]);
}

TEST(tensors_are_read) {
    const etprof::TensorColumns tensors = read(load_seed("everything")).tensors;
    CHECK(tensors.scalar_type == (std::vector<std::int8_t>{6, 4, 1}));
    CHECK(tensors.offset == (std::vector<std::int64_t>{64, -1, 128}));
    CHECK(tensors.sizes_begin == (std::vector<std::uint64_t>{0, 2, 2}));
    CHECK(tensors.sizes_count == (std::vector<std::uint32_t>{2, 0, 1}));
    CHECK(tensors.sizes == (std::vector<std::int64_t>{2, 3, 5}));
    CHECK(tensors.strides == (std::vector<std::int64_t>{3, 1, 1}));
}

TEST(layout_does_not_matter) {
    const EventTable expected = read(load_seed("everything"));
    for (const char* seed : {"bare", "unaligned"}) {
        const EventTable found = read(load_seed(seed));
        CHECK(found.names == expected.names);
        CHECK(found.profile.end_time == expected.profile.end_time);
        CHECK(found.debug.double_value == expected.debug.double_value);
        CHECK(found.tensors.sizes == expected.tensors.sizes);
    }
}

TEST(zero_events_are_zero_rows) {
    CHECK_EQUAL(0u, read(load_seed("no_blocks")).blocks.name_id.size());
    const EventTable table = read(load_seed("no_events"));
    CHECK_EQUAL(1u, table.blocks.name_id.size());
    CHECK_EQUAL(0u, table.profile.name_id.size());
}

TEST(an_empty_file_says_so) {
    const std::uint8_t nothing = 0;
    CHECK_REFUSED(etprof::open_etdump(&nothing, 0), "empty", 0);
    CHECK_REFUSED(etprof::open_etdump(nullptr, 0), "empty", 0);
}

TEST(faults_tell_what_to_do) {
    const auto fault_of = [](const Bytes& bytes) {
        try {
            read(bytes);
        } catch (const FormatError& error) {
            return error.fault();
        }
        throw std::logic_error("was not refused");
    };
    Bytes bytes = load_seed("everything");
    CHECK(fault_of(Bytes(64)) == Fault::kNotEtdump);
    CHECK(fault_of(Bytes(bytes.begin(), bytes.end() - 1)) == Fault::kTruncated);
    bytes[4] = 0xff;
    bytes[7] = 0xff;
    CHECK(fault_of(bytes) == Fault::kDamaged);
}

TEST(pieces_hold_what_the_file_holds) {
    for (const char* seed : {"everything", "bare", "unaligned", "no_blocks", "pieces"}) {
        CHECK(survives(load_seed(seed)));
    }
}

/// Review 17, 5: a delegate may call an event of its own as ExecuTorch calls its executions.
TEST(a_piece_ends_with_an_execution_that_is_no_delegates) {
    const Bytes bytes = load_seed("pieces");
    const auto reader = etprof::open_etdump(bytes.data(), bytes.size());
    std::vector<std::size_t> rows;
    std::vector<std::string> names;
    while (!reader->at_end()) {
        const EventTable piece = reader->read(1, "Method::execute");
        rows.push_back(piece.profile.name_id.size());
        names.insert(names.end(), piece.names.begin(), piece.names.end());
    }
    CHECK(rows == (std::vector<std::size_t>{4, 4, 4}));
    // Review 17, 11: each name is given once, with the first piece that has it.
    CHECK(names == read(bytes).names);
}

TEST(every_truncation_of_a_prefixed_file_is_refused) {
    for (const char* seed : {"everything", "unaligned", "no_blocks", "no_events"}) {
        const Bytes bytes = load_seed(seed);
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            CHECK(!survives(Bytes(bytes.begin(), bytes.begin() + static_cast<long>(size))));
        }
    }
}

TEST(every_truncation_of_a_bare_file_is_survived) {
    const Bytes bytes = load_seed("bare");
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        survives(Bytes(bytes.begin(), bytes.begin() + static_cast<long>(size)));
    }
}

TEST(every_byte_may_be_anything) {
    for (const char* seed : {"everything", "bare", "unaligned"}) {
        const Bytes sound = load_seed(seed);
        for (std::size_t at = 0; at < sound.size(); ++at) {
            for (const int value : {0, 1, 3, 4, 8, 0x7f, 0x80, 0xff}) {
                Bytes bytes = sound;
                bytes[at] = static_cast<std::uint8_t>(value);
                survives(bytes);
            }
        }
    }
}

TEST(every_word_may_be_huge) {
    const Bytes sound = load_seed("everything");
    for (std::size_t at = 0; at + 4 <= sound.size(); ++at) {
        for (const std::uint8_t value : {0x7f, 0x80, 0xff}) {
            Bytes bytes = sound;
            std::fill_n(bytes.begin() + static_cast<long>(at), 4, value);
            survives(bytes);
        }
    }
}

TEST(a_small_file_that_describes_a_huge_tree_is_refused) {
    CHECK(!survives(load_seed("shared_events")));
}
