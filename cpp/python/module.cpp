#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <exception>
#include <memory>

#include "etdump/reader.h"

namespace py = pybind11;
using etprof::Column;
using etprof::EventTable;
using etprof::FormatError;

namespace {

/// Returns `column` as a read-only NumPy view whose base, `table`, keeps it alive.
template <typename T>
py::array view(const Column<T>& column, const py::object& table) {
    py::array_t<T> array(static_cast<py::ssize_t>(column.size()), column.data(), table);
    array.attr("setflags")(py::arg("write") = false);
    return array;
}

/// Returns the columns of one part of `table`, by name.
template <auto Part>
py::dict view_columns(const py::object& table) {
    py::dict views;
    (table.cast<EventTable&>().*Part).for_each([&](const char* name, const auto& column) {
        views[name] = view(column, table);
    });
    return views;
}

/// Decodes the names, bytes that are not UTF-8 so that they can be had back (Python's
/// `surrogateescape`), for a name is never worth a failure.
py::tuple decode_names(const EventTable& table) {
    py::tuple names(table.names.size());
    for (std::size_t i = 0; i < table.names.size(); ++i) {
        const std::string& name = table.names[i];
        PyObject* text = PyUnicode_DecodeUTF8(name.data(), static_cast<py::ssize_t>(name.size()),
                                              "surrogateescape");
        if (text == nullptr) {
            throw py::error_already_set();
        }
        names[i] = py::reinterpret_steal<py::str>(text);
    }
    return names;
}

/// A PieceReader with the bytes that it reads, which cannot be resized or freed meanwhile.
class PinnedReader {
 public:
    explicit PinnedReader(const py::buffer& object) : bytes_(object.request()) {
        if (PyBuffer_IsContiguous(bytes_.view(), 'C') == 0) {
            throw py::buffer_error("the bytes do not stand one behind the other");
        }
        reader_ = etprof::open_etdump(static_cast<const std::uint8_t*>(bytes_.ptr),
                                      static_cast<std::size_t>(bytes_.size * bytes_.itemsize));
    }

    bool at_end() const { return reader_->at_end(); }

    EventTable read(std::size_t rows, const std::string& last) {
        const py::gil_scoped_release release;
        return reader_->read(rows, last);
    }

 private:
    py::buffer_info bytes_;
    std::unique_ptr<etprof::PieceReader> reader_;
};

EventTable read_whole(const py::buffer& object) { return PinnedReader(object).read(SIZE_MAX, ""); }

/// In the order of Fault.
constexpr const char* kFaultNames[] = {"empty", "truncated", "not_etdump", "damaged"};

/// Raises FormatError(reason, offset, fault) in Python.
void translate_format_error(std::exception_ptr thrown, py::handle type) {
    try {
        std::rethrow_exception(thrown);
    } catch (const FormatError& error) {
        const char* const fault = kFaultNames[static_cast<int>(error.fault())];
        const py::tuple arguments = py::make_tuple(error.what(), error.offset(), fault);
        PyErr_SetObject(type.ptr(), arguments.ptr());
    }
}

}  // namespace

PYBIND11_MODULE(_etdump, m) {
    m.doc() = "Reads ETDumps into columns; etprof.etdump.reader is its typed face.";
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
        .def_readonly("first_block", &EventTable::first_block)
        .def("names", &decode_names)
        .def("blocks", &view_columns<&EventTable::blocks>)
        .def("profile", &view_columns<&EventTable::profile>)
        .def("allocations", &view_columns<&EventTable::allocations>)
        .def("allocators", &view_columns<&EventTable::allocators>)
        .def("debug", &view_columns<&EventTable::debug>)
        .def("tensors", &view_columns<&EventTable::tensors>);
    py::class_<PinnedReader>(m, "PieceReader")
        .def(py::init<const py::buffer&>(), py::arg("data"))
        .def_property_readonly("at_end", &PinnedReader::at_end)
        .def("read", &PinnedReader::read, py::arg("rows"), py::arg("last"));
    m.def("read_etdump", &read_whole, py::arg("data"));
}
