#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <exception>

#include "etdump/reader.h"

namespace py = pybind11;
using etprof::Column;
using etprof::EventTable;
using etprof::Fault;
using etprof::FormatError;

namespace {

/// Returns `column` as a read-only NumPy view whose base, `table`, keeps it alive.
template <typename T>
py::array view(const Column<T>& column, const py::object& table) {
    py::array_t<T> array(static_cast<py::ssize_t>(column.size()), column.data(), table);
    array.attr("setflags")(py::arg("write") = false);
    return array;
}

py::dict view_blocks(const py::object& table) {
    const auto& blocks = table.cast<const EventTable&>().blocks;
    py::dict columns;
    columns["name_id"] = view(blocks.name_id, table);
    columns["bundled_input_index"] = view(blocks.bundled_input_index, table);
    columns["event_begin"] = view(blocks.event_begin, table);
    columns["event_end"] = view(blocks.event_end, table);
    return columns;
}

py::dict view_profile(const py::object& table) {
    const auto& profile = table.cast<const EventTable&>().profile;
    py::dict columns;
    columns["block_index"] = view(profile.block_index, table);
    columns["event_index"] = view(profile.event_index, table);
    columns["name_id"] = view(profile.name_id, table);
    columns["delegate_debug_id_str_id"] = view(profile.delegate_debug_id_str_id, table);
    columns["delegate_debug_id_int"] = view(profile.delegate_debug_id_int, table);
    columns["instruction_id"] = view(profile.instruction_id, table);
    columns["chain_index"] = view(profile.chain_index, table);
    columns["start_time"] = view(profile.start_time, table);
    columns["end_time"] = view(profile.end_time, table);
    columns["metadata_offset"] = view(profile.metadata_offset, table);
    columns["metadata_size"] = view(profile.metadata_size, table);
    return columns;
}

py::dict view_allocations(const py::object& table) {
    const auto& allocations = table.cast<const EventTable&>().allocations;
    py::dict columns;
    columns["block_index"] = view(allocations.block_index, table);
    columns["event_index"] = view(allocations.event_index, table);
    columns["allocator_id"] = view(allocations.allocator_id, table);
    columns["size_bytes"] = view(allocations.size_bytes, table);
    return columns;
}

py::dict view_allocators(const py::object& table) {
    const auto& allocators = table.cast<const EventTable&>().allocators;
    py::dict columns;
    columns["block_index"] = view(allocators.block_index, table);
    columns["name_id"] = view(allocators.name_id, table);
    return columns;
}

py::dict view_debug(const py::object& table) {
    const auto& debug = table.cast<const EventTable&>().debug;
    py::dict columns;
    columns["block_index"] = view(debug.block_index, table);
    columns["event_index"] = view(debug.event_index, table);
    columns["name_id"] = view(debug.name_id, table);
    columns["delegate_debug_id_str_id"] = view(debug.delegate_debug_id_str_id, table);
    columns["delegate_debug_id_int"] = view(debug.delegate_debug_id_int, table);
    columns["instruction_id"] = view(debug.instruction_id, table);
    columns["chain_index"] = view(debug.chain_index, table);
    columns["value_type"] = view(debug.value_type, table);
    columns["value_fields"] = view(debug.value_fields, table);
    columns["int_value"] = view(debug.int_value, table);
    columns["float_value"] = view(debug.float_value, table);
    columns["double_value"] = view(debug.double_value, table);
    columns["bool_value"] = view(debug.bool_value, table);
    columns["is_output"] = view(debug.is_output, table);
    columns["tensor_begin"] = view(debug.tensor_begin, table);
    columns["tensor_count"] = view(debug.tensor_count, table);
    return columns;
}

py::dict view_tensors(const py::object& table) {
    const auto& tensors = table.cast<const EventTable&>().tensors;
    py::dict columns;
    columns["scalar_type"] = view(tensors.scalar_type, table);
    columns["offset"] = view(tensors.offset, table);
    columns["sizes_begin"] = view(tensors.sizes_begin, table);
    columns["sizes_count"] = view(tensors.sizes_count, table);
    columns["strides_begin"] = view(tensors.strides_begin, table);
    columns["strides_count"] = view(tensors.strides_count, table);
    columns["sizes"] = view(tensors.sizes, table);
    columns["strides"] = view(tensors.strides, table);
    return columns;
}

/// Decodes the names. Bytes that are not UTF-8 show as `\xNN`, for a name is never worth a failure.
py::tuple decode_names(const EventTable& table) {
    py::tuple names(table.names.size());
    for (std::size_t i = 0; i < table.names.size(); ++i) {
        const std::string& name = table.names[i];
        PyObject* text = PyUnicode_DecodeUTF8(name.data(), static_cast<py::ssize_t>(name.size()),
                                              "backslashreplace");
        if (text == nullptr) {
            throw py::error_already_set();
        }
        names[i] = py::reinterpret_steal<py::str>(text);
    }
    return names;
}

/// The bytes of a Python object, which cannot be resized or freed meanwhile.
class PinnedBytes {
 public:
    explicit PinnedBytes(const py::buffer& object) {
        if (PyObject_GetBuffer(object.ptr(), &bytes_, PyBUF_SIMPLE) != 0) {
            throw py::error_already_set();
        }
    }
    PinnedBytes(const PinnedBytes&) = delete;
    PinnedBytes& operator=(const PinnedBytes&) = delete;
    ~PinnedBytes() { PyBuffer_Release(&bytes_); }

    const std::uint8_t* data() const { return static_cast<const std::uint8_t*>(bytes_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(bytes_.len); }

 private:
    Py_buffer bytes_;
};

EventTable read_buffer(const py::buffer& object) {
    const PinnedBytes bytes(object);
    const py::gil_scoped_release release;
    return etprof::read_etdump(bytes.data(), bytes.size());
}

const char* name_of(Fault fault) {
    switch (fault) {
        case Fault::kEmpty:
            return "empty";
        case Fault::kTruncated:
            return "truncated";
        case Fault::kNotEtdump:
            return "not_etdump";
        case Fault::kDamaged:
            break;
    }
    return "damaged";
}

/// Raises FormatError(reason, offset, fault) in Python.
void translate_format_error(std::exception_ptr thrown, py::handle type) {
    try {
        std::rethrow_exception(thrown);
    } catch (const FormatError& error) {
        const py::tuple arguments =
            py::make_tuple(error.what(), error.offset(), name_of(error.fault()));
        PyErr_SetObject(type.ptr(), arguments.ptr());
    }
}

}  // namespace

PYBIND11_MODULE(_etdump, m) {
    m.doc() = "Reads ETDumps into columns; etprof.etdump is its typed face.";
    m.attr("__version__") = ETPROF_VERSION;

    static const py::handle format_error =
        py::exception<FormatError>(m, "FormatError", PyExc_ValueError).release();
    py::register_exception_translator([](std::exception_ptr thrown) {
        if (thrown) {
            translate_format_error(thrown, format_error);
        }
    });

    py::class_<EventTable>(m, "EventTable")
        .def_readonly("version", &EventTable::version)
        .def("names", &decode_names)
        .def("blocks", &view_blocks)
        .def("profile", &view_profile)
        .def("allocations", &view_allocations)
        .def("allocators", &view_allocators)
        .def("debug", &view_debug)
        .def("tensors", &view_tensors);
    m.def("read_etdump", &read_buffer, py::arg("data"));
}
