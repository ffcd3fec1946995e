#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "etdump/reader.h"

/// The bytes of each column by table and name, and all names behind each other.
using Contents = std::map<std::string, std::string>;

template <typename Columns>
void collect_columns(const std::string& table, Columns& columns, Contents& contents) {
    columns.for_each([&](const std::string& name, const auto& column) {
        // These count from the start of a piece.
        const std::string end = name.substr(name.size() < 6 ? 0 : name.size() - 6);
        if (name != "block_index" && end != "_begin") {
            contents[table + "." + name].append(reinterpret_cast<const char*>(column.data()),
                                                column.size() * sizeof column[0]);
        }
    });
}

/// Reads pieces of `rows` events to the end of the file. What pieces share out otherwise than the
/// whole file is left out.
inline Contents read_pieces(etprof::PieceReader& reader, std::size_t rows, std::string_view last) {
    Contents contents;
    do {
        etprof::EventTable piece = reader.read(rows, last);
        collect_columns("profile", piece.profile, contents);
        collect_columns("allocations", piece.allocations, contents);
        collect_columns("allocators", piece.allocators, contents);
        collect_columns("debug", piece.debug, contents);
        collect_columns("tensors", piece.tensors, contents);
        for (const std::string& name : piece.names) {
            contents["names"] += name + '\0';
        }
    } while (!reader.at_end());
    return contents;
}
