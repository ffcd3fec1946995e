"""Lists the operators of a lowered method, inside its delegates and outside: origin, shape, work."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from etprof.base.errors import ExportError
from etprof.export import upstream
from etprof.export.changes.scopes import find_deciding
from etprof.run.delegation import (
    NO_REASON,
    NO_RULE,
    NOT_ASKED,
    GraphOperator,
    Origin,
    SourceLine,
)
from etprof.run.program import ScopeCatch

if TYPE_CHECKING:
    from etprof.backends.rewrite import Rewrite
    from etprof.export.changes.scopes import Scope

_Shapes = Sequence[Sequence[int]]


@dataclass
class LoweredDelegate:
    """One delegate call and what was put into it."""

    name: str
    backend: str
    blob: bytes
    nodes: list[torch.fx.Node]
    """The graph nodes inside, in execution order."""
    operators: list[GraphOperator] = field(default_factory=list)
    instruction: int | None = None


@dataclass
class LoweredMethod:
    """All operators of one method."""

    operators: list[GraphOperator]
    """Inside and outside of delegates, in execution order."""
    delegates: list[LoweredDelegate]


@dataclass(frozen=True)
class PartitionRules:
    """What the partitioner knew and said."""

    reasons: Mapping[str, str]
    """Its own reasons, by node name."""
    known_targets: frozenset[str]
    """The operators it has rules for."""

    def explain(self, node: torch.fx.Node) -> str:
        """Returns why `node` was left out."""
        if not self.known_targets:
            return NOT_ASKED
        if node.name in self.reasons:
            return self.reasons[node.name]
        has_rule = target_name(node) in self.known_targets
        return NO_REASON if has_rule else NO_RULE


@dataclass(frozen=True)
class MissedRewrites:
    """What the rewrites that an export did not ask for would replace."""

    of_traced: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Their names, by the node of the traced model."""
    of_lowering: Sequence[type[Rewrite]] = ()
    failed: dict[str, str] = field(default_factory=dict)
    """How those failed that did; nobody asked for them, so that ends no export."""
    inserted: frozenset[str] = frozenset()
    """Names of nodes that were put there after the lowering, which no change of it reaches."""

    def find(self, node: torch.fx.Node, traced: str | None) -> tuple[str, ...]:
        """Returns the names of those that would replace a lowered node, or its origin."""
        due = () if node.name in self.inserted else self.of_lowering
        lowering = (rewrite.name for rewrite in due if self._matches(rewrite, node))
        return tuple(dict.fromkeys((*self.of_traced.get(traced or "", ()), *lowering)))

    def _matches(self, rewrite: type[Rewrite], node: torch.fx.Node) -> bool:
        try:
            return rewrite.name not in self.failed and rewrite.named(rewrite.matches)(node)
        except ExportError as error:
            self.failed[rewrite.name] = str(error)
            return False


def list_operators(
    graph_module: torch.fx.GraphModule, rules: PartitionRules, missed: MissedRewrites
) -> LoweredMethod:
    """Walks a lowered graph; what picks a delegate's result (`getitem`) is not an operator."""
    method = LoweredMethod([], [])
    for node in call_nodes(graph_module.graph):
        if target_name(node) == "executorch_call_delegate":
            delegate = _read_delegate(graph_module, node, len(method.delegates), missed)
            method.delegates.append(delegate)
            method.operators.extend(delegate.operators)
        else:
            described = describe_node(node, None, rules.explain(node))
            method.operators.append(_add_causes(described, node, missed))
    return method


def add_instructions(method: LoweredMethod, graph_module: torch.fx.GraphModule) -> None:
    """Adds the instruction numbers from the emitted graph, whose debug handles they are.

    ExecuTorch makes its nodes anew, and numbers equal names by their order in the graph: a node that
    a rewrite put in after another one, before it, has another number then. So operators of one kind
    belong together in their order; where their shapes differ, nobody knows which is which.
    """
    emitted = defaultdict[str, list[torch.fx.Node]](list)
    delegates = {delegate.name: delegate for delegate in method.delegates}
    for node in call_nodes(graph_module.graph):
        if target_name(node) == "executorch_call_delegate":
            holder: Any = node.args[0]
            delegates[holder.name].instruction = node.meta.get("debug_handle")
        else:
            emitted[_kind_of(node.name)].append(node)
    named = defaultdict[str, list[GraphOperator]](list)
    for operator in method.operators:
        if operator.delegate is None:
            named[_kind_of(operator.name)].append(operator)
    instructions = {
        operator.name: node.meta.get("debug_handle")
        for kind, operators in named.items()
        for operator, node in _pair(operators, emitted[kind])
        if _may_be(operator, node)
    }
    method.operators = [
        operator.model_copy(update={"instruction": instructions.get(operator.name)})
        if operator.delegate is None
        else operator
        for operator in method.operators
    ]


def _pair(
    operators: Sequence[GraphOperator], nodes: Sequence[torch.fx.Node]
) -> Iterator[tuple[GraphOperator, torch.fx.Node]]:
    """Yields the operators of one kind with their nodes: by order, and where some are gone by name."""
    if len(operators) == len(nodes):
        yield from zip(operators, nodes, strict=True)
        return
    by_name = {node.name: node for node in nodes}
    for operator in operators:
        if operator.name in by_name:
            yield operator, by_name[operator.name]


def _may_be(operator: GraphOperator, node: torch.fx.Node) -> bool:
    """Whether a node has the operator's shape, where both are known."""
    shape = shape_of(node)
    return shape is None or operator.shape is None or shape == operator.shape


def _kind_of(name: str) -> str:
    """Returns a node's name without its number."""
    return re.sub(r"_\d+$", "", name)


_UNCOUNTED = frozenset({"getitem", "to", "_to_copy", "_assert_tensor_metadata"})


def count_covered(
    programs: Iterable[torch.export.ExportedProgram], scopes: Sequence[Scope]
) -> tuple[ScopeCatch, ...]:
    """Returns how many operators of traced graphs each of the scopes decides on.

    Casts, and what only turns floats into integers or back, are not counted.
    """
    caught: Counter[Scope] = Counter()
    quantized: Counter[Scope] = Counter()
    is_float = True
    nodes = (node for program in programs for node in program.graph.nodes) if scopes else ()
    for node in nodes:
        name = target_name(node)
        if node.op != "call_function" or name.partition(".")[0] in _UNCOUNTED:
            continue
        if is_quantize(node):
            is_float = False
            continue
        scope = find_deciding(scopes, find_origin(node).module_path, name)
        if scope is not None:
            caught[scope] += 1
            quantized[scope] += any(DEQUANTIZE in target_name(s) for s in node.all_input_nodes)
    return tuple(
        ScopeCatch(
            scope=str(fromkey),
            operators=caught[fromkey],
            quantized=None if is_float else quantized[fromkey],
        )
        for fromkey in dict.fromkeys(scopes)
    )


def call_nodes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yields the nodes that compute something, or call a delegate."""
    for node in graph.nodes:
        if node.op == "call_function" and target_name(node) not in {
            "getitem",
            "alloc",
        }:
            yield node


def _read_delegate(
    graph_module: torch.fx.GraphModule, node: torch.fx.Node, number: int, missed: MissedRewrites
) -> LoweredDelegate:
    holder: Any = node.args[0]
    lowered: Any = getattr(graph_module, holder.target)
    nodes = list(call_nodes(lowered.original_module.graph_module.graph))
    return LoweredDelegate(
        name=holder.name,
        backend=lowered.backend_id,
        blob=bytes(lowered.processed_bytes),
        nodes=nodes,
        operators=[
            _add_causes(describe_node(inner_node, number, None), inner_node, missed)
            for inner_node in nodes
        ],
    )


def _add_causes(
    operator: GraphOperator, node: torch.fx.Node, missed: MissedRewrites
) -> GraphOperator:
    """Adds what the operator was in the traced model, and what could be made of it."""
    traced = find_traced(node)
    return operator.model_copy(
        update={
            "readers": len(node.users),
            "traced": traced and traced[0],
            "traced_as": traced and traced[1],
            "rewrites": missed.find(node, traced and traced[0]),
        }
    )


def find_traced(node: torch.fx.Node) -> tuple[str, str] | None:
    """Returns name and target of the traced node that `node` comes from; None where nobody says."""
    sources, traced = node.meta.get("from_node"), None
    while sources:
        traced, sources = sources[0], sources[0].from_node
    return None if traced is None else (traced.name, traced.target)


def describe_node(node: torch.fx.Node, delegate: int | None, reason: str | None) -> GraphOperator:
    """Returns what the graph says of one operator."""
    return GraphOperator(
        name=node.name,
        operator=target_name(node),
        debug_handle=node.meta.get("debug_handle"),
        delegate=delegate,
        origin=find_origin(node),
        shape=shape_of(node),
        macs=count_macs(node),
        input_bytes=input_bytes(node),
        output_bytes=output_bytes(node),
        held_bytes=held_bytes(node),
        is_quantization=is_quantize(node),
        is_cast=is_cast(node),
        inputs=tuple(source.name for source in node.all_input_nodes),
        permutation=permutation_of(node),
        reason=reason,
    )


def is_cast(node: torch.fx.Node) -> bool:
    """Says whether the operator copies one tensor into another data type."""
    sources = node.all_input_nodes
    operator = target_name(node).removeprefix("dim_order_ops.").partition(".")[0]
    if operator not in _CONVERSIONS or len(sources) != 1:
        return False
    before, after = (getattr(n.meta.get("val"), "dtype", None) for n in (sources[0], node))
    return None not in {before, after} and before != after


_CONVERSIONS: Final = {"_to_copy", "_to_dim_order_copy"}
"""They change a tensor's layout, its data type, or both."""
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>.*)'
)


def module_path(meta: Mapping[str, Any]) -> str:
    """Returns the path of the innermost module of a node by its `meta`; empty for the model itself."""
    stack = list((meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def find_origin(node: torch.fx.Node) -> Origin:
    """Returns the innermost module of `node` and the innermost line outside PyTorch itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    kind = stack[-1][1] if stack else ""
    kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return Origin(
        module_path=module_path(node.meta),
        module_type=kind.rpartition(".")[2],
        source=_source_line(node.meta.get("stack_trace")),
    )


def _source_line(stack_trace: str | None) -> SourceLine | None:
    frames = list(_FRAME.finditer(stack_trace or ""))
    model_frames = [
        frame for frame in frames if not upstream.PYTORCH_FILE.search(frame["file"])
    ] or frames
    if not model_frames:
        return None
    last = model_frames[-1]
    return SourceLine(
        file=last["file"],
        line=int(last["line"]),
        function=last["function"],
        code=last["code"].strip(),
    )


def name_operator(kind: str, origin: Origin) -> str:
    """Names an operator by its kind, module and line of the model."""
    line = origin.source
    where = "" if line is None else f" ({line.file}:{line.line}: {line.code})"
    return f"{kind}{f' of module {origin.module_path}' if origin.module_path else ''}{where}"


QUANTIZE = "quantize"
DEQUANTIZE = "dequantize"
_LONGEST_CHAIN = 16
"""Of dequantisations one after the other; an export has one, a stranger's graph may have 20 000."""


def target_name(node: torch.fx.Node) -> str:
    """Returns an operator's name without its namespace, such as `convolution.default`."""
    name = getattr(node.target, "__name__", None) or str(node.target)
    return name.removeprefix("aten.")


def is_quantize(node: torch.fx.Node) -> bool:
    """Tells whether the node turns floats into integers or back, or computes the scales for it."""
    name = target_name(node)
    return QUANTIZE in name or "choose_qparams" in name


def shape_of(node: torch.fx.Node) -> list[int] | None:
    """Returns the shape for the example inputs.

    None when the node is not one tensor, or when its size depends on values inside the model.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    sizes = [_size(size) for size in value.shape]
    static_sizes = [size for size in sizes if size is not None]
    return static_sizes if len(static_sizes) == len(sizes) else None


def permutation_of(node: torch.fx.Node) -> tuple[int, ...] | None:
    """Returns how a permute or transpose moves the dimensions; None for other operators."""
    shape = shape_of(node)
    name = target_name(node).partition(".")[0].removesuffix("_copy")
    if shape is None or name not in {"permute", "transpose", "t"}:
        return None
    dimensions = list(range(len(shape)))
    if name == "t":
        return tuple(dimensions[::-1])
    if name == "permute":
        order: Any = node.args[1]
        return tuple(dimensions[index] for index in order)
    first, second = (int(str(index)) for index in node.args[1:3])
    dimensions[first], dimensions[second] = dimensions[second], dimensions[first]
    return tuple(dimensions)


def _size(size: Any) -> int | None:  # noqa: ANN401 - int or torch.SymInt
    """Returns a dimension as a number; a dynamic one has the size of the example inputs."""
    if isinstance(size, int):
        return size
    return None if size.node.hint is None else int(size.node.hint)


def element_count(node: torch.fx.Node) -> int:
    """Returns the number of elements; 0 where the shape is not known."""
    shape = shape_of(node)
    return 0 if shape is None else math.prod(shape)


def stored_node(node: torch.fx.Node) -> torch.fx.Node:
    """Looks through dequantisation: returns the node whose tensor really is in memory."""
    for _ in range(_LONGEST_CHAIN):
        if node.op != "call_function" or DEQUANTIZE not in target_name(node):
            break
        node = node.all_input_nodes[0]
    return node


def input_bytes(node: torch.fx.Node) -> int:
    """Returns the bytes an operator reads from its inputs and weights, as they are stored."""
    return sum(_bytes(stored_node(source), _bits(source)) for source in node.all_input_nodes)


def held_bytes(node: torch.fx.Node) -> int:
    """Returns the bytes that an operator reads of parameters, buffers and constants, as stored.

    Of a table that it takes rows from, those rows; of quantised weights, their scales too.
    """
    kind, total = target_name(node), 0
    takes_rows = "embedding" in kind or kind.startswith(("index.", "index_select."))
    for position, source in enumerate(node.all_input_nodes):
        stored = stored_node(source)
        if not _is_held(stored):
            continue
        size = _bytes(stored, _bits(source))
        if (
            takes_rows
            and position == 0
            and (shape := shape_of(stored))
            and (result_shape := shape_of(node))
        ):
            size = size * (math.prod(result_shape[:-1])) // max(shape[0], 1)
        scales = source.all_input_nodes[1:] if source is not stored else []
        total += size + sum(
            _bytes(scale, None) for scale in scales if _is_held(scale) and _is_real(scale)
        )
    return total


def _is_held(node: torch.fx.Node) -> bool:
    """Whether a value is the program's own; torch.export names those so."""
    return node.op in {"placeholder", "get_attr"} and node.name.startswith(("p_", "b_", "c_"))


def _is_real(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def output_bytes(node: torch.fx.Node) -> int:
    """Returns the bytes of the result, one byte per element where only its quantised form stays."""
    users = list(node.users)
    quantized = (
        bool(users)
        and all(
            target_name(user).find(QUANTIZE) >= 0 and DEQUANTIZE not in target_name(user)
            for user in users
            if user.op == "call_function"
        )
        and any(user.op == "call_function" for user in users)
    )
    return element_count(node) if quantized else _bytes(node, None)


def _bytes(node: torch.fx.Node, bits: int | None) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    return math.ceil(element_count(node) * (bits or value.element_size() * 8) / 8)


def _bits(source: torch.fx.Node) -> int | None:
    """Returns 4 for a dequantised 4-bit tensor, which PyTorch holds in int8; else None."""
    limits = [argument for argument in source.args if isinstance(argument, int)]
    return 4 if DEQUANTIZE in str(source.target) and {-8, 7} <= set(limits) else None


def count_macs(node: torch.fx.Node) -> int | None:
    """Returns the multiply-accumulates of one execution; None for operators without any."""
    # An ETRecord's nodes are none of PyTorch's.
    sources: list[Any] = [argument for argument in node.args if hasattr(argument, "meta")]
    inputs = [shape_of(source) or [] for source in sources]
    return macs_of(target_name(node), inputs, shape_of(node) or (), node.args)


def macs_of(
    name: str, inputs: Sequence[Sequence[int]], output: Sequence[int], arguments: Sequence[object]
) -> int | None:
    """Returns what operator `name` multiplies and adds: its shapes and arguments say it."""
    counter = _COUNTERS.get(name.partition(".")[0])
    return None if counter is None else counter(inputs, output, arguments)


class MacCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch
    """Counts the multiply-accumulates of all that runs under it.

    Attention has to be taken apart into matrix products, as by SDPBackend.MATH.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self.macs = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        """Runs one operator and counts it."""
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            inputs = [list(value.shape) for value in args if isinstance(value, torch.Tensor)]
            self.macs += macs_of(func.__name__, inputs, list(result.shape), args) or 0
        return result


def _convolution(inputs: _Shapes, output: Sequence[int], arguments: Sequence[object]) -> int:
    """Output elements x (input channels / groups) x kernel; mirrored when transposed."""
    transposed = len(arguments) > 6 and bool(arguments[6])
    return math.prod(inputs[0] if transposed else output) * math.prod(inputs[1][1:])


def _product(inputs: _Shapes, output: Sequence[int], _: Sequence[object]) -> int:
    """Output elements x what is summed; a bias is not counted."""
    return math.prod(output) * inputs[0][-1]


def _added_product(inputs: _Shapes, output: Sequence[int], _: Sequence[object]) -> int:
    return math.prod(output) * inputs[1][-1]


def _attention(inputs: _Shapes, _: Sequence[int], __: Sequence[object]) -> int:
    """Two products, query x key and weights x value: B·H·L·S·(E + Ev)."""
    query, key, value = inputs[:3]
    return math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


_COUNTERS: dict[str, Callable[[_Shapes, Sequence[int], Sequence[object]], int]] = {
    "convolution": _convolution,
    "linear": _product,
    "mm": _product,
    "bmm": _product,
    "matmul": _product,
    "addmm": _added_product,
    "baddbmm": _added_product,
    "scaled_dot_product_attention": _attention,
}
