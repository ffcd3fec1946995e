"""XNNPACK's part of an export: partitioner, its reasons, quantizer, and what it made of the graph.

The one importer of ExecuTorch's exporting code for XNNPACK.
"""

from __future__ import annotations

import difflib
import functools
import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etprof.backends.backend import Exporter
from etprof.backends.xnnpack.aten_forms import MOST_AXES
from etprof.backends.xnnpack.graph import aten_name, map_nodes, read_xnnpack_graph, traced_name
from etprof.backends.xnnpack.graph_rewrites import GRAPH_REWRITES
from etprof.backends.xnnpack.lowering_rewrites import (
    LOWERING_REWRITES,
    rewritten_lowering,
    widen_rules,
)
from etprof.backends.xnnpack.needless_work import NEEDLESS_WORK
from etprof.backends.xnnpack.position_rewrites import CountedPositions
from etprof.backends.xnnpack.program_rewrites import PROGRAM_REWRITES, StaticConvolutions
from etprof.backends.xnnpack.sme import predict, sme2_precisions
from etprof.base.errors import UsageError
from etprof.base.upstream_noise import quiet_upstream
from etprof.run.delegation import DelegateNode

with quiet_upstream():
    from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
    from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        CONV_TARGETS,
        CONV_TRANSPOSE_TARGETS,
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import torch

    from etprof.backends.rewrite import Rewrite

_TAKE_BF16: Final = frozenset(
    [
        "Abs",
        "Add",
        "Cat",
        "Ceil",
        "Clamp",
        "ConstantPad",
        "Cos",
        "Div",
        "Exp",
        "Floor",
        "Gelu",
        "Hardswish",
        "Hardtanh",
        "LeakyReLU",
        "Linear",
        "Log",
        "Maximum",
        "Minimum",
        "Mul",
        "Neg",
        "Permute",
        "Pow",
        "ReLU",
        "ReciprocalSquareRoot",
        "Sigmoid",
        "Sin",
        "SliceCopy",
        "SquareRoot",
        "Sub",
        "Tanh",
        "UnsqueezeCopy",
        "ViewCopy",
    ]
)
"""Rules whose operators in bfloat16 run as PyTorch computes them (ExecuTorch 1.5.1), each tried alone
on x86-64 and in the emulator with SME2 and without. Asked for bfloat16, the partitioner takes
convolutions, batched products, softmax, pooling, means and resizing too, and then no runtime loads them."""
_LOGGER_NAME = "executorch.backends.xnnpack.partition"


class XnnpackExporter(Exporter):
    """How programs for XNNPACK are made."""

    def make_partitioners(
        self,
        rules: Sequence[str],
        precisions: Sequence[str],
        *,
        per_operator: bool,
        rewrites: Collection[str] = (),
        outside: Collection[str] = (),
    ) -> list[Any]:
        """Returns the one partitioner; raises UsageError for a rule that it does not have."""
        widened: list[Any] = widen_rules(_select_rules(rules) or ALL_PARTITIONER_CONFIGS, rewrites)
        partitioner = XnnpackPartitioner(
            configs=[
                functools.partial(rule, enable_bf16=True) if _name(rule) in _TAKE_BF16 else rule
                for rule in widened
            ],
            config_precisions=[ConfigPrecisionType[name.upper()] for name in precisions] or None,
            per_op_mode=per_operator,
        )
        for rule in partitioner.target_partitioner_configs.values():
            rule.check_constraints = _with_objections(rule.check_constraints, outside)
        return [partitioner]

    def rewrites(self) -> Sequence[type[Rewrite]]:
        """Returns those for this delegate."""
        return (
            *NEEDLESS_WORK,
            *GRAPH_REWRITES,
            *PROGRAM_REWRITES,
            CountedPositions,
            *LOWERING_REWRITES,
        )

    def rewritten_lowering(
        self, names: Collection[str]
    ) -> AbstractContextManager[Mapping[str, int]]:
        """Has ExecuTorch serialise as the rewrites called `names` want it."""
        return rewritten_lowering(names)

    @contextmanager
    def collected_reasons(self) -> Iterator[dict[str, str]]:
        """Reads the partitioner's debug log."""
        logger = logging.getLogger(_LOGGER_NAME)
        collector = _ReasonCollector()
        before = logger.level, logger.propagate, logger.handlers
        logger.handlers, logger.propagate = [collector], False
        logger.setLevel(logging.DEBUG)
        try:
            yield collector.reasons
        finally:
            logger.level, logger.propagate, logger.handlers = before
            logger.setLevel(before[0])

    def make_quantizer(
        self,
        *,
        per_channel: bool,
        dynamic: bool,
        may_quantize: Callable[[Any], bool],
        rewrites: Collection[str] = (),
    ) -> XNNPACKQuantizer:
        """Returns XNNPACK's own quantizer, symmetric."""
        config = get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=dynamic)
        quantizer = _FloatQuantizer().set_global(config)
        if StaticConvolutions.name in rewrites:
            fixed = get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=False)
            # In a fixed order: the second of two annotations of a place is not made.
            for target in sorted({*CONV_TARGETS, *CONV_TRANSPOSE_TARGETS}, key=str):
                quantizer.set_operator_type(target, fixed)
        return quantizer.set_filter_function(
            lambda node: may_quantize(node) and _has_dimensions(node) and not _leads_to_float(node)
        )

    def quantizable_types(self) -> set[str]:
        """Returns those of XNNPACK's own quantizer."""
        every = (
            op_overload
            for pattern in XNNPACKQuantizer.SUPPORTED_PATTERNS
            for op_overload in pattern.op_overloads
        )
        return {str(overload).split(".")[1] for overload in every}

    def read_delegate(
        self,
        blob: bytes,
        nodes: Sequence[torch.fx.Node],
        is_bookkeeping: Callable[[torch.fx.Node], bool],
    ) -> list[DelegateNode]:
        """Reads XNNPACK's serialized graph and finds the operators behind its nodes."""
        graph = read_xnnpack_graph(blob)
        return [
            DelegateNode(
                index=mapped.node.index,
                kind=mapped.node.kind,
                debug_handle=mapped.node.debug_handle,
                types=(*mapped.node.input_types, mapped.node.output_type),
                operators=mapped.operators,
                attribution=mapped.attribution,
                inputs=tuple(i for i in mapped.node.input_ids if i not in graph.constant_ids),
                output=mapped.node.output_id,
                permutation=mapped.node.parameters.get("perm"),
                readers=graph.count_readers(mapped.node),
                prediction=predict(mapped.node),
                sme2_precisions=sme2_precisions(mapped.node),
            )
            for mapped in map_nodes(graph, nodes, is_bookkeeping)
        ]

    def find_refused(self, said: str, nodes: Sequence[DelegateNode]) -> list[DelegateNode]:
        """Reads the number of a node, which is its debug handle, or of a value in XNNPACK's error."""
        if match := re.search(r"[Ff]ailed to (?:create|define) (.*)node (\d+)", said):
            label, handle = match[1].lower().replace(" ", ""), int(match[2])
            refused = [node for node in nodes if node.debug_handle == handle]
            return [node for node in refused if node.kind.lower() in label] or refused
        if match := re.search(r"Failed to define tensor (\d+)", said):
            value = int(match[1])
            writers = [node for node in nodes if node.output == value]
            return writers or [node for node in nodes if value in node.inputs]
        return []

    def weight_bytes(self, blob: bytes) -> int:
        """Adds up the constants of XNNPACK's serialized graph."""
        return read_xnnpack_graph(blob).weight_bytes


def _with_objections(
    check: Callable[[torch.fx.Node, Any], bool], outside: Collection[str]
) -> Callable[[torch.fx.Node, Any], bool]:
    """Has a rule of the partitioner leave out what XNNPACK would refuse or compute otherwise."""

    def check_constraints(node: torch.fx.Node, program: Any) -> bool:  # noqa: ANN401 - PyTorch's
        objection = ""
        if traced_name(node) in outside:
            objection = "XNNPACK refuses it when the program is made or loaded"
        elif _has_scales(node):
            objection = "ExecuTorch 1.5.1 hands XNNPACK the product without its alpha and beta, which are not 1"
        if objection:
            logging.getLogger(_LOGGER_NAME).debug(_Objection(node, objection))
        return not objection and check(node, program)

    return check_constraints


@dataclass(frozen=True)
class _Objection:
    """Why a node is left out, as ExecuTorch's own partitioner logs it."""

    node: torch.fx.Node
    reason: str


def _has_scales(node: torch.fx.Node) -> bool:
    """Whether it is a sum of a product and a matrix, one of them times a number."""
    if aten_name(node) not in {"addmm", "baddbmm"}:
        return False
    return any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta"))


class _FloatQuantizer(XNNPACKQuantizer):  # type: ignore[misc] # its types are not read
    """XNNPACK's, which would make floating-point numbers of integer sums and products: of indices."""

    def transform_for_annotation(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """Makes tensors of scalars, but not where the result is of integers."""
        arguments = {node: node.args for node in model.graph.nodes if _gives_integers(node)}
        model = super().transform_for_annotation(model)
        for node, args in arguments.items():
            node.args = args
        model.graph.eliminate_dead_code()
        model.recompile()
        return model


def _gives_integers(node: torch.fx.Node) -> bool:
    is_float = getattr(node.meta.get("val"), "is_floating_point", None)
    return is_float is not None and not is_float()


_STEPS: Final = frozenset(
    {"add", "sub", "mul", "div", "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "expand",
     "clone", "contiguous", "dropout", "alias", "slice", "mean", "add_", "mul_", "div_"}
)  # fmt: skip
"""What stands between a product and the softmax of its attention, or between squares and their root."""
_NEED_FLOAT: Final = frozenset({"softmax", "_softmax", "_safe_softmax", "rsqrt"})


def _leads_to_float(node: torch.fx.Node) -> bool:
    """Whether only softmaxes or norms' roots read it, through nothing but what is done to their inputs.

    Both are computed in float32 in any case. A mask of large negative numbers leaves integers no
    room for the scores beside it, and squares of a few large values none for the mean of all. Nor
    has the root of a large row room beside that of a small one, so what scales by it stays too.
    """
    seen: set[torch.fx.Node] = set()
    pending = [node]
    while pending:
        step = pending.pop()
        if step in seen:
            continue
        seen.add(step)
        # What others read too, such as a sum that a norm follows and that is kept, stays as it is.
        if aten_name(step) not in _STEPS and not _is_row_sum(step):
            return False
        if not any(aten_name(input_node) == "rsqrt" for input_node in step.all_input_nodes):
            pending += [reader for reader in step.users if aten_name(reader) not in _NEED_FLOAT]
    return True


def _is_row_sum(node: torch.fx.Node) -> bool:
    """Whether it is a product with one column, as which `kept_dimensions` computes a norm's mean."""
    return aten_name(node) == "linear" and node.meta["val"].shape[-1] == 1


def _has_dimensions(node: torch.fx.Node) -> bool:
    """Whether XNNPACK takes its inputs as integers, by their axes.

    A quantised scalar ends its layout pass (v1.5). Of more than six axes it refuses the integers when
    the program is loaded, and then the conversion that a layer outside the delegate reads.
    """
    computed = (
        input_node.meta.get("val")
        for input_node in node.all_input_nodes
        if input_node.op != "get_attr"
    )
    return all(0 < getattr(value, "ndim", 1) <= MOST_AXES for value in computed)


class _ReasonCollector(logging.Handler):
    """Reads the `WhyNoPartition` objects that are logged in place of messages."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.reasons: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the first reason of each node; later rounds repeat it."""
        message: Any = record.msg
        if hasattr(message, "node") and message.node is not None:
            self.reasons.setdefault(message.node.name, str(message.reason).rstrip("."))


def _name(rule: type) -> str:
    """Returns the class's name without `Config`."""
    return rule.__name__.removesuffix("Config")


def _select_rules(names: Sequence[str]) -> list[type]:
    """Returns the rules called `names`, in lower case."""
    rules = {_name(rule).lower(): rule for rule in ALL_PARTITIONER_CONFIGS}
    for name in names:
        if name.lower() not in rules:
            close = difflib.get_close_matches(name.lower(), rules, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(rules)}"
            msg = f"--operators {name!r}: XNNPACK's partitioner has no such rule; {hint}"
            raise UsageError(msg)
    return [rules[name.lower()] for name in names]
