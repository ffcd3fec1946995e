"""Reads a graph out of an ETRecord's JSON, as data.

ExecuTorch's own reader makes a module of it: it runs sizes as Python (`sympy.sympify`), writes
nodes' names into Python that it runs, and unpickles tensors. What etprof asks of a graph - names,
shapes, modules, lines, debug handles - is plain text and numbers in the same JSON.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from pydantic import StrictInt, TypeAdapter, ValidationError

from etprof.base.records import Count, Record
from etprof.base.text import clean
from etprof.export import upstream
from etprof.model_registry.expressions import (
    NotAnExpressionError,
    check_expression,
    find_expressions,
)

MAX_NODES: Final = 20_000
"""Of one method; an LLM of 32 layers has 4000. What is asked of them takes time by their square."""
MAX_NAME: Final = 500
_MAX_ELEMENTS: Final = 2**48
_MAX_RANK: Final = 64
_MAX_SHOWN: Final = 60
_OPERATOR: Final = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_HANDLE: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_NAMESPACES: Final = re.compile(
    r"executorch\.exir\.dialects\.(?:edge|backend)\.ops\.|torch\.ops\.\w+\.|_operator\.|torch\."
    r"|executorch\.exir\.memory\.(?=view$)",
    re.ASCII,
)
_GETITEM: Final = "getitem"


class GraphError(Exception):
    """What in the graph is not as an export writes it."""


@dataclass(eq=False, slots=True)
class GraphNode:
    """A node with what `etprof.export` asks of PyTorch's."""

    name: str
    op: str
    target: str
    args: list[Any] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    all_input_nodes: list[GraphNode] = field(default_factory=list)
    users: list[GraphNode] = field(default_factory=list)


@dataclass
class Graph:
    """The nodes of one method, in order."""

    nodes: list[GraphNode] = field(default_factory=list)


class _Value(Record):
    """A tensor's type and sizes: each `{"as_int": 3}` or `{"as_expr": {"expr_str": …, "hint": …}}`."""

    dtype: StrictInt
    sizes: tuple[dict[str, Any], ...]


class _Input(Record):
    arg: dict[str, Any]


class _NodeRecord(Record):
    name: str
    target: str
    inputs: tuple[_Input, ...]
    outputs: tuple[dict[str, Any], ...]
    metadata: dict[str, str]


class _GraphRecord(Record):
    inputs: tuple[dict[str, Any], ...]
    nodes: tuple[_NodeRecord, ...]
    tensor_values: dict[str, _Value]


class _Module(Record):
    graph: _GraphRecord


class _ProgramRecord(Record):
    graph_module: _Module


Handles = dict[str, dict[Count, Count | tuple[Count, ...] | None]]


def read_handles(document: object) -> dict[str, dict[int, list[int]]]:
    """Returns the debug handles of every instruction, by method; raises GraphError."""
    try:
        methods = TypeAdapter(Handles).validate_python(document)
    except ValidationError as error:
        raise GraphError(_first_problem(error)) from None
    return {
        method: {
            number: [handles] if isinstance(handles, int) else list(handles or ())
            for number, handles in instructions.items()
        }
        for method, instructions in methods.items()
    }


def check_expressions(document: object) -> None:
    """Raises GraphError for an expression, anywhere in a program, that is not arithmetic.

    None is evaluated here, but the file may be handed on to tools that do.
    """
    for expression in find_expressions(document):
        _check(expression)


def _check(expression: object) -> None:
    try:
        check_expression(expression if isinstance(expression, str) else "")
    except NotAnExpressionError as error:
        shortened = repr(
            expression if len(str(expression)) <= _MAX_SHOWN else f"{str(expression)[:60]}…"
        )
        raise GraphError(
            f"the expression {shortened} is refused ({error}); it would be run as Python by "
            "ExecuTorch's own reader"
        ) from None


def read_graph(document: object) -> Graph:
    """Returns the graph of a method; raises GraphError when it is not as an export writes it."""
    try:
        program = _ProgramRecord.model_validate(document)
    except ValidationError as error:
        raise GraphError(_first_problem(error)) from None
    described = program.graph_module.graph
    if len(described.nodes) > MAX_NODES:
        raise GraphError(f"it has {len(described.nodes)} nodes, more than {MAX_NODES}")
    return _Builder(described).build()


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(key)[:_MAX_SHOWN] for key in first["loc"]) or "document"
    return f"{where}: {first['msg']}"


class _Builder:
    """Makes the nodes one after the other; each may read those before it."""

    def __init__(self, described: _GraphRecord) -> None:
        self._described = described
        self._nodes_by_name: dict[str, GraphNode] = {}
        self._graph = Graph()

    def build(self) -> Graph:
        """Returns the graph."""
        for graph_input in self._described.inputs:
            for name in _names(graph_input):
                self._add(GraphNode(name, "placeholder", name), name)
        for node in self._described.nodes:
            self._add_call(node)
        return self._graph

    def _add_call(self, described: _NodeRecord) -> None:
        if len(described.target) > MAX_NAME or not _OPERATOR.fullmatch(described.target):
            raise GraphError(f"{described.target[:_MAX_SHOWN]!r} is not an operator's name")
        meta = _read_metadata(described.metadata)
        target = _NAMESPACES.sub("", described.target, count=1)
        call = GraphNode(described.name, "call_function", target, meta=meta)
        sources = [self._find_sources(call, argument.arg) for argument in described.inputs]
        for argument, named in zip(described.inputs, sources, strict=True):
            call.args.append(named[0] if len(named) == 1 else _only(argument.arg))
        _connect(call, itertools.chain.from_iterable(sources))
        outputs = [name for output in described.outputs for name in _names(output)]
        if len(described.outputs) == 1 and not isinstance(_only(described.outputs[0]), list):
            self._add(call, outputs[0] if outputs else described.name)
            return
        self._add(call, described.name)
        for index, output in enumerate(outputs):
            item = GraphNode(output, "call_function", _GETITEM, [call, index], dict(meta))
            _connect(item, [call])
            self._add(item, output)

    def _add(self, node: GraphNode, name: str) -> None:
        """Adds a node whose value is called `name`."""
        if len(name) > MAX_NAME or not name.isidentifier() or clean(name) != name:
            raise GraphError(
                f"{name[:_MAX_SHOWN]!r} is not a node's name; it would be run as Python by "
                "ExecuTorch's own reader"
            )
        if name in self._nodes_by_name:
            raise GraphError(f"two nodes are called {name}")
        node.name = name
        node.meta["val"] = _make_value(self._described.tensor_values.get(name))
        self._nodes_by_name[name] = node
        self._graph.nodes.append(node)

    def _find_sources(self, call: GraphNode, argument: dict[str, Any]) -> list[GraphNode]:
        """Returns the nodes that an argument names."""
        names = [*_names(argument)]
        unknown = [name for name in names if name not in self._nodes_by_name]
        if unknown:
            reader = call.name[:_MAX_SHOWN]
            raise GraphError(f"{reader} reads {unknown[0][:_MAX_SHOWN]!r}, which is not before it")
        return [self._nodes_by_name[name] for name in names]


def _connect(node: GraphNode, sources: Iterable[GraphNode]) -> None:
    node.all_input_nodes = [*dict.fromkeys(sources)]
    for source in node.all_input_nodes:
        source.users.append(node)


def _only(union: dict[str, Any]) -> Any:  # noqa: ANN401 - numbers, text, lists of them
    """Returns the value of a union such as `{"as_int": 3}`."""
    return next(iter(union.values()), None)


def _names(union: dict[str, Any]) -> Iterator[str]:
    """Yields the names of the values that an argument or output stands for."""
    kind = next(iter(union), "")
    value = union.get(kind)
    if kind in {"as_tensor", "as_sym_int", "as_sym_bool", "as_sym_float", "as_custom_obj"}:
        yield from _name(value)
    elif kind in {"as_tensors", "as_sym_ints", "as_sym_bools", "as_sym_floats"}:
        for element in _listed(value):
            yield from _name(element)
    elif kind == "as_optional_tensors":
        for element in _listed(value):
            yield from _names(element if isinstance(element, dict) else {})


def _name(value: object) -> Iterator[str]:
    """Yields a value's name; a number among symbols has none."""
    fields = value if isinstance(value, dict) else {}
    name = fields.get("name", fields.get("as_name"))
    if isinstance(name, str):
        yield name


def _listed(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()


def _make_value(described: _Value | None) -> torch.Tensor | None:
    """Returns a tensor without content; None where a size depends on values inside the model."""
    if described is None:
        return None
    sizes = [_size(size) for size in described.sizes]
    static_sizes = [size for size in sizes if size is not None]
    elements = math.prod(max(1, size) for size in static_sizes[:_MAX_RANK])
    if len(sizes) > _MAX_RANK or any(size < 0 for size in static_sizes) or elements > _MAX_ELEMENTS:
        raise GraphError(f"a tensor of {static_sizes[:8]} is none")
    if described.dtype not in upstream.SERIALIZED_DTYPES:
        raise GraphError(f"element type {described.dtype} is unknown")
    if len(static_sizes) < len(sizes):
        return None
    return torch.empty(
        static_sizes, dtype=upstream.SERIALIZED_DTYPES[described.dtype], device="meta"
    )


def _size(size: dict[str, Any]) -> int | None:
    """Returns a size for the example inputs: its own, or the hint beside its expression."""
    number = size.get("as_int")
    if number is None:
        expression = size.get("as_expr")
        hint = expression.get("hint") if isinstance(expression, dict) else None
        number = hint.get("as_int") if isinstance(hint, dict) else None
    return number if type(number) is int else None  # JSON's true is an int to Python


def _read_metadata(metadata: dict[str, str]) -> dict[str, Any]:
    """Returns what is said of where a node comes from, in PyTorch's own form."""
    handle = metadata.get("debug_handle")
    modules = metadata.get("nn_module_stack")
    return {
        "stack_trace": metadata.get("stack_trace"),
        "debug_handle": int(handle) if handle and _HANDLE.fullmatch(handle) else None,
        "nn_module_stack": _read_modules(modules) if modules else {},
    }


def _read_modules(text: str) -> dict[str, tuple[str, str]]:
    """Returns path and type by key; entries are `key,path,type`, joined by `;`."""
    entries = [_split_fields(module_text) for module_text in text.split(";")]
    return {fields[0]: (fields[1], fields[2]) for fields in entries if len(fields) == 3}


def _split_fields(module_text: str) -> list[str]:
    """Splits at the commas outside brackets: a key may be `getattr(L['self'].layers, '0')`."""
    fields, depth = [""], 0
    for character in module_text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            fields.append("")
        else:
            fields[-1] += character
    return [text.strip() for text in fields]
