#include "etdump/reader.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "etdump/flatbuffer.h"
#include "etdump/name_index.h"

namespace etprof {
namespace {

// The schema: fields of each table in the order of their ids.
enum EtdumpField { kVersion, kRunData };
enum RunDataField { kRunName, kBundledInputIndex, kAllocators, kEvents };
enum EventField { kProfileEvent, kAllocationEvent, kDebugEvent };
enum ProfileField {
    kProfileName,
    kProfileChainIndex,
    kProfileInstructionId,
    kProfileDelegateIdInt,
    kProfileDelegateIdStr,
    kProfileMetadata,
    kStartTime,
    kEndTime,
};
enum AllocationField { kAllocatorId, kAllocationSize };
enum DebugField {
    kDebugChainIndex,
    kDebugInstructionId,
    kDebugEntry,
    kDebugDelegateIdInt,
    kDebugDelegateIdStr,
    kDebugName,
};
enum ValueField {
    kType,
    kTensor,
    kTensorList,
    kInt,
    kFloat,
    kDouble,
    kBool,
    kOutput,
    kValueFields
};
enum TensorField { kScalarType, kSizes, kStrides, kOffset };

constexpr Layout<kValueFields> kNoFields{};
constexpr std::uint32_t kOffsetWidth = 4;
constexpr std::string_view kIdentifier = "ED00";
/// Root offset and identifier.
constexpr std::size_t kBareHeaderSize = 8;
constexpr std::size_t kPrefixSize = 4;
/// A profile event of ExecuTorch takes 80 to 90 bytes: a row for every 64 is room for all of them
/// at once. Room that stays empty costs addresses, not memory.
constexpr std::size_t kBytesPerRow = 64;
/// Larger files let their columns grow, so that a sparse file of terabytes costs nothing.
constexpr std::size_t kLargestReserve = std::size_t{1} << 30;

std::string_view identifier_at(const std::uint8_t* data, std::size_t size, std::size_t at) {
    if (size < at + kIdentifier.size()) {
        return {};
    }
    return {reinterpret_cast<const char*>(data) + at, kIdentifier.size()};
}

/// Checks what stands in front of the root table, and returns the buffer behind any size prefix.
Buffer open_buffer(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        throw FormatError(Fault::kEmpty, 0, "empty");
    }
    if (identifier_at(data, size, kPrefixSize + 4) == kIdentifier) {
        Buffer buffer(data, kPrefixSize, size);
        const std::uint64_t announced = buffer.load<std::uint32_t>(0);
        if (announced > size - kPrefixSize) {
            throw FormatError(Fault::kTruncated, size,
                              "cut short: " + std::to_string(announced + kPrefixSize) +
                                  " bytes announced, " + std::to_string(size) + " there");
        }
        return buffer;
    }
    if (identifier_at(data, size, 4) == kIdentifier) {
        return Buffer(data, 0, size);
    }
    if (size < kPrefixSize + kBareHeaderSize) {
        throw FormatError(Fault::kTruncated, size,
                          "cut short: " + std::to_string(size) + " bytes are no whole header");
    }
    throw FormatError(Fault::kNotEtdump, 4, "no identifier \"ED00\" at byte 4 or 8");
}

/// One reading of one file.
class EtdumpReader final : public PieceReader {
 public:
    EtdumpReader(const Buffer& buffer, std::size_t size)
        : buffer_(buffer), size_(size), names_(size) {
        const auto root = etdump_.follow(buffer_, buffer_.begin());
        version_ = root.get<std::uint32_t>(kVersion, 0);
        if (root.has(kRunData)) {
            blocks_ = buffer_.elements(root.position(kRunData), kOffsetWidth, "ETDump.run_data");
        }
    }

    bool at_end() const override { return blocks_.count == 0 && events_.count == 0; }

    EventTable read(std::size_t rows, std::string_view last) override {
        table_ = EventTable{};
        table_.version = version_;
        const auto known = static_cast<std::ptrdiff_t>(names_.names().size());
        const std::size_t room = std::min(rows, std::min(size_, kLargestReserve) / kBytesPerRow);
        table_.profile.for_each([room](const char*, auto& column) { column.reserve(room); });
        table_.first_block = block_count_ - (events_.count > 0);
        if (events_.count > 0) {  // The rest of a block of which the piece before has the start.
            add_block();
        }
        for (bool is_full = read_events(rows, last); !is_full && blocks_.count > 0;) {
            open_block();
            is_full = read_events(rows, last);
        }
        const auto& names = names_.names();
        table_.names.assign(names.begin() + known, names.end());
        return std::move(table_);
    }

 private:
    void open_block() {
        const auto block = run_data_.follow(buffer_, take(blocks_));
        block_name_ = read_name(block, kRunName, "RunData.name");
        bundled_input_ = block.get<std::int32_t>(kBundledInputIndex, -1);
        block_begin_ = event_count_;
        ++block_count_;
        add_block();
        if (block.has(kAllocators)) {
            read_allocators(block.position(kAllocators));
        }
        if (block.has(kEvents)) {
            events_ = buffer_.elements(block.position(kEvents), kOffsetWidth, "RunData.events");
        }
    }

    void add_block() {
        block_index_ = static_cast<std::uint32_t>(table_.blocks.name_id.size());
        table_.blocks.name_id.push_back(block_name_);
        table_.blocks.bundled_input_index.push_back(bundled_input_);
        table_.blocks.event_begin.push_back(block_begin_);
        table_.blocks.event_end.push_back(event_count_);
    }

    /// Reads the block's events; returns whether the piece is full before their end.
    bool read_events(std::size_t rows, std::string_view last) {
        bool is_full = false;
        while (events_.count > 0 && !is_full) {
            read_event(take(events_));
            ++event_count_;
            is_full = table_.profile.name_id.size() >= rows && ends_execution(last);
        }
        if (!table_.blocks.event_end.empty()) {
            table_.blocks.event_end.back() = event_count_;
        }
        return is_full;
    }

    /// Whether the newest profile event is called `last` and no delegate's.
    bool ends_execution(std::string_view last) const {
        const ProfileColumns& found = table_.profile;
        return !found.name_id.empty() && found.name_id.back() != kMissing &&
               found.delegate_debug_id_str_id.back() == kMissing &&
               found.delegate_debug_id_int.back() < 0 &&
               names_.names()[found.name_id.back()] == last;
    }

    /// Takes the first of `elements` off, and returns where it stands.
    static std::uint64_t take(Elements& elements) {
        --elements.count;
        return std::exchange(elements.begin, elements.begin + kOffsetWidth);
    }

    void read_allocators(std::uint64_t at) {
        Elements left = buffer_.elements(at, kOffsetWidth, "RunData.allocators");
        while (left.count > 0) {
            const auto allocator = allocator_.follow(buffer_, take(left));
            table_.allocators.block_index.push_back(block_index_);
            table_.allocators.name_id.push_back(read_name(allocator, 0, "Allocator.name"));
        }
    }

    /// An event of a kind that the schema gets in future is counted, and has no row.
    void read_event(std::uint64_t at) {
        const auto event = event_.follow(buffer_, at);
        if (event.has(kProfileEvent) + event.has(kAllocationEvent) + event.has(kDebugEvent) > 1) {
            throw FormatError(Fault::kDamaged, event.position(), "Event is of two kinds at once");
        }
        if (event.has(kProfileEvent)) {
            read_profile_event(event.position(kProfileEvent));
        } else if (event.has(kDebugEvent)) {
            read_debug_event(event.position(kDebugEvent));
        } else if (event.has(kAllocationEvent)) {
            read_allocation_event(event.position(kAllocationEvent));
        }
    }

    void read_profile_event(std::uint64_t at) {
        const auto event = profile_.follow(buffer_, at);
        ProfileColumns& columns = table_.profile;
        columns.block_index.push_back(block_index_);
        columns.event_index.push_back(event_count_);
        columns.name_id.push_back(read_name(event, kProfileName, "ProfileEvent.name"));
        columns.delegate_debug_id_str_id.push_back(
            read_name(event, kProfileDelegateIdStr, "ProfileEvent.delegate_debug_id_str"));
        columns.delegate_debug_id_int.push_back(event.get<std::int32_t>(kProfileDelegateIdInt, -1));
        columns.instruction_id.push_back(event.get<std::int32_t>(kProfileInstructionId, -1));
        columns.chain_index.push_back(event.get<std::int32_t>(kProfileChainIndex, 0));
        columns.start_time.push_back(event.get<std::uint64_t>(kStartTime, 0));
        columns.end_time.push_back(event.get<std::uint64_t>(kEndTime, 0));
        Elements metadata;
        if (event.has(kProfileMetadata)) {
            metadata = buffer_.elements(event.position(kProfileMetadata), 1,
                                        "ProfileEvent.delegate_debug_metadata");
        }
        columns.metadata_offset.push_back(metadata.begin);
        columns.metadata_size.push_back(metadata.count);
    }

    void read_allocation_event(std::uint64_t at) {
        const auto event = allocation_.follow(buffer_, at);
        table_.allocations.block_index.push_back(block_index_);
        table_.allocations.event_index.push_back(event_count_);
        table_.allocations.allocator_id.push_back(event.get<std::int32_t>(kAllocatorId, 0));
        table_.allocations.size_bytes.push_back(event.get<std::uint64_t>(kAllocationSize, 0));
    }

    void read_debug_event(std::uint64_t at) {
        const auto event = debug_.follow(buffer_, at);
        DebugColumns& columns = table_.debug;
        columns.block_index.push_back(block_index_);
        columns.event_index.push_back(event_count_);
        columns.name_id.push_back(read_name(event, kDebugName, "DebugEvent.name"));
        columns.delegate_debug_id_str_id.push_back(
            read_name(event, kDebugDelegateIdStr, "DebugEvent.delegate_debug_id_str"));
        columns.delegate_debug_id_int.push_back(event.get<std::int32_t>(kDebugDelegateIdInt, -1));
        columns.instruction_id.push_back(event.get<std::int32_t>(kDebugInstructionId, -1));
        columns.chain_index.push_back(event.get<std::uint64_t>(kDebugChainIndex, 0));
        columns.tensor_begin.push_back(table_.tensors.offset.size());
        const bool has_value = event.has(kDebugEntry);
        read_value(has_value ? value_.follow(buffer_, event.position(kDebugEntry))
                             : Table<kValueFields>(buffer_, at, kNoFields),
                   has_value ? 0 : -1);
        columns.tensor_count.push_back(
            static_cast<std::uint32_t>(table_.tensors.offset.size() - columns.tensor_begin.back()));
    }

    /// Where the event has no value, `value` has no fields.
    void read_value(const Table<kValueFields>& value, std::int8_t least_type) {
        std::uint8_t fields = 0;
        for (std::uint8_t field = 0; field < kValueFields; ++field) {
            fields = static_cast<std::uint8_t>(fields | (value.has(field) << field));
        }
        DebugColumns& columns = table_.debug;
        columns.value_type.push_back(value.get<std::int8_t>(kType, least_type));
        columns.value_fields.push_back(fields);
        columns.int_value.push_back(read_boxed<std::int64_t>(value, kInt, int_));
        columns.float_value.push_back(read_boxed<float>(value, kFloat, float_));
        columns.double_value.push_back(read_boxed<double>(value, kDouble, double_));
        columns.bool_value.push_back(read_bool(value, kBool));
        columns.is_output.push_back(value.has(kOutput) ? read_bool(value, kOutput) : -1);
        if (value.has(kTensor)) {
            read_tensor(value.position(kTensor));
        }
        if (value.has(kTensorList)) {
            read_tensor_list(value.position(kTensorList));
        }
    }

    /// Returns the scalar in the one-field table that `field` leads to; 0 if there is none.
    template <typename T>
    T read_boxed(const Table<kValueFields>& value, std::size_t field, TableReader<1>& reader) {
        if (!value.has(field)) {
            return 0;
        }
        return reader.follow(buffer_, value.position(field)).template get<T>(0, 0);
    }

    std::int8_t read_bool(const Table<kValueFields>& value, std::size_t field) {
        return read_boxed<std::int8_t>(value, field, bool_) != 0;
    }

    void read_tensor_list(std::uint64_t at) {
        const auto list = tensor_list_.follow(buffer_, at);
        if (!list.has(0)) {
            return;
        }
        Elements left = buffer_.elements(list.position(0), kOffsetWidth, "TensorList.tensors");
        while (left.count > 0) {
            read_tensor(take(left));
        }
    }

    void read_tensor(std::uint64_t at) {
        const auto tensor = tensor_.follow(buffer_, at);
        TensorColumns& columns = table_.tensors;
        columns.scalar_type.push_back(tensor.get<std::int8_t>(kScalarType, 0));
        columns.offset.push_back(tensor.get<std::int64_t>(kOffset, 0));
        columns.sizes_begin.push_back(columns.sizes.size());
        columns.sizes_count.push_back(read_longs(tensor, kSizes, "Tensor.sizes", columns.sizes));
        columns.strides_begin.push_back(columns.strides.size());
        columns.strides_count.push_back(
            read_longs(tensor, kStrides, "Tensor.strides", columns.strides));
    }

    /// Appends the vector in `field` to `longs` and returns its length.
    std::uint32_t read_longs(const Table<4>& tensor, std::size_t field, const char* what,
                             Column<std::int64_t>& longs) {
        if (!tensor.has(field)) {
            return 0;
        }
        const Elements found = buffer_.elements(tensor.position(field), sizeof(std::int64_t), what);
        for (std::uint32_t i = 0; i < found.count; ++i) {
            longs.push_back(buffer_.load<std::int64_t>(found.begin + sizeof(std::int64_t) * i));
        }
        return found.count;
    }

    /// Returns the number of the string in `field`, or kMissing.
    template <std::size_t N>
    std::int32_t read_name(const Table<N>& table, std::size_t field, const char* what) {
        if (!table.has(field)) {
            return kMissing;
        }
        const std::uint64_t at = table.position(field);
        return names_.find_or_add(buffer_.string(at, what), at);
    }

    Buffer buffer_;
    std::size_t size_;
    NameIndex names_;
    EventTable table_;  ///< The piece that is being read.
    std::uint32_t version_ = 0;
    std::uint32_t block_index_ = 0;
    std::uint32_t block_count_ = 0;
    std::int64_t event_count_ = 0;
    Elements blocks_;  ///< Not yet opened.
    Elements events_;  ///< Of the open block, not yet read.
    std::int32_t block_name_ = kMissing;
    std::int32_t bundled_input_ = -1;
    std::int64_t block_begin_ = 0;

    // The schema's tables, with the width in bytes of each field.
    TableReader<2> etdump_{"ETDump", {4, 4}};
    TableReader<4> run_data_{"RunData", {4, 4, 4, 4}};
    TableReader<1> allocator_{"Allocator", {4}};
    TableReader<3> event_{"Event", {4, 4, 4}};
    TableReader<8> profile_{"ProfileEvent", {4, 4, 4, 4, 4, 4, 8, 8}};
    TableReader<2> allocation_{"AllocationEvent", {4, 8}};
    TableReader<6> debug_{"DebugEvent", {8, 4, 4, 4, 4, 4}};
    TableReader<kValueFields> value_{"Value", {1, 4, 4, 4, 4, 4, 4, 4}};
    TableReader<4> tensor_{"Tensor", {1, 4, 4, 8}};
    TableReader<1> tensor_list_{"TensorList", {4}};
    TableReader<1> int_{"Int", {8}};
    TableReader<1> float_{"Float", {4}};
    TableReader<1> double_{"Double", {8}};
    TableReader<1> bool_{"Bool", {1}};
};

}  // namespace

std::unique_ptr<PieceReader> open_etdump(const std::uint8_t* data, std::size_t size) {
    return std::make_unique<EtdumpReader>(open_buffer(data, size), size);
}

}  // namespace etprof
