"""Rewrites of XNNPACK's lowering: what its schema and runtime take, and its exporter does not give.

Each is in force inside `rewritten_lowering` only; ExecuTorch's own tables are as before after it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import torch

from etprof.backends.rewrite import Rewrite
from etprof.backends.xnnpack.graph_edits import keep_products_float, merge_transposes
from etprof.base.upstream_noise import quiet_upstream

with quiet_upstream():
    from executorch.backends.xnnpack import xnnpack_preprocess
    from executorch.backends.xnnpack._passes.channels_last_tagged_reshape_pass import (
        ChannelsLastTaggedReshapePass,
    )
    from executorch.backends.xnnpack._passes.remove_redundant_copy_pass import (
        RemoveRedundantCopyPass,
    )
    from executorch.backends.xnnpack.operators import node_visitor
    from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
    from executorch.backends.xnnpack.partition.config.generic_node_configs import (
        ToDimOrderCopyConfig,
    )
    from executorch.backends.xnnpack.serialization.xnnpack_graph_schema import XNNConvert, XNode
    from executorch.exir.dialects._ops import ops as exir_ops

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

_VISITORS: Final[dict[str, type[Any]]] = node_visitor._node_visitor_dict
_CONVOLUTION: Final = "aten.convolution.default"
_COPY: Final = "aten._to_copy.default"
_KNOWN_VERSION: Final = "1.5"
"""Of ExecuTorch, whose lowering these were written for and tested with."""
_REMOVE_COPY: Final = "_try_remove_regular_redundant_to_copy"
_TAG_COPY: Final = "tag_node"
_BACKEND: Final = "XnnpackBackend"
_SERIALIZE: Final = "serialize_xnnpack_binary"
_CASTS: Final = frozenset({torch.float16, torch.float32})


class LoweringRewrite(Rewrite):
    """Changes how operators are handed to the delegate, not the operators.

    Its places are ExecuTorch's own, which no interface promises: a version that nobody has looked
    at may have them and mean something else.
    """

    level = "lowering"

    @classmethod
    def find_problem(cls) -> str | None:
        """Says that the version is unknown, or lacks what this rests on."""
        installed = version("executorch")
        if not installed.startswith(f"{_KNOWN_VERSION}."):
            return f"known to hold for ExecuTorch {_KNOWN_VERSION}, not for {installed}"
        return (
            None if cls.has_parts() else f"this ExecuTorch lacks what it rests on: {cls.rests_on}"
        )

    @classmethod
    @abstractmethod
    def has_parts(cls) -> bool:
        """Whether the tables and passes that it changes are there."""


class HalfPointwiseWeights(LoweringRewrite):
    """Pointwise convolutions of halves keep halves as weights."""

    name = "half_pointwise_weights"
    gives_sme2_weights = True
    changes = (
        "the weights of 1x1 convolutions of stride 1, without padding and groups, are serialised "
        "in half precision; biases stay float32"
    )
    legal = "the weights are halves already; they were only stored wider"
    rests_on = (
        "op_conv2d.py serialises every weight as float32 (force_fp32=True), and XNNPACK packs "
        "halves for SME2 only where the weights are halves too (PF16)"
    )

    @classmethod
    def has_parts(cls) -> bool:
        """Whether convolutions are serialised by a visitor that this can narrow."""
        return _CONVOLUTION in _VISITORS

    @classmethod
    def matches(cls, node: torch.fx.Node) -> bool:
        """Whether it is such a convolution of halves; of quantised weights it sees floats."""
        if node.target is not exir_ops.edge.aten.convolution.default:
            return False
        weight: Any = node.args[1]
        return _is_pointwise(node) and weight.meta["val"].dtype == torch.float16


class DelegatedCasts(LoweringRewrite):
    """Casts between half and single precision stay inside the delegate."""

    name = "delegated_casts"
    delegated_casts = _CASTS
    changes = (
        "a cast between half and single precision is a Convert node of the delegate, instead of a "
        "call of a portable kernel between two delegate calls"
    )
    legal = "the same rounding to nearest"
    rests_on = (
        "ToDimOrderCopyConfig refuses changes of type, while XNNPACK's schema and runtime have "
        "Convert; channels_last_tagged_reshape_pass.py takes every copy for a change of layout"
    )

    @classmethod
    def has_parts(cls) -> bool:
        """Whether copies have a visitor and a rule that can be widened."""
        can_keep = hasattr(RemoveRedundantCopyPass, _REMOVE_COPY)
        can_keep = can_keep and hasattr(ChannelsLastTaggedReshapePass, _TAG_COPY)
        return can_keep and _COPY in _VISITORS and ToDimOrderCopyConfig in ALL_PARTITIONER_CONFIGS

    @classmethod
    def matches(cls, node: torch.fx.Node) -> bool:
        """Whether it is such a cast, and keeps the layout."""
        if not _is_cast(node):
            return False
        before, after = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
        return bool(
            {before.dtype, after.dtype} == _CASTS and before.dim_order() == after.dim_order()
        )


class GraphEdit(LoweringRewrite):
    """Changes the delegate's own graph, before it is serialised."""

    @classmethod
    def has_parts(cls) -> bool:
        """Whether the delegate's graph passes through a place where this can look at it."""
        return all(hasattr(xnnpack_preprocess, name) for name in (_BACKEND, _SERIALIZE))

    @classmethod
    @abstractmethod
    def edit(cls, graph: Any) -> int:  # noqa: ANN401 - ExecuTorch's
        """Changes the graph; returns at how many places."""


class MergedTransposes(GraphEdit):
    """Transposes inside the delegate that undo each other, or what a reshape between them does."""

    name = "merged_transposes"
    changes = (
        "transposes and reshapes in a row inside the delegate that leave the elements in their "
        "order become one reshape or none, and two transposes in a row become one"
    )
    legal = "the same elements in the same order; what others read stays"
    rests_on = (
        "channels_last_tagged_reshape_pass.py transposes images into XNNPACK's layout and back, "
        "and nothing looks at what the model's own permutes and reshapes make of that"
    )

    @classmethod
    def edit(cls, graph: Any) -> int:  # noqa: ANN401
        """Merges them; returns how many transposes are gone."""
        return merge_transposes(graph)


class FloatProducts(GraphEdit):
    """Products of two activations that were quantised and are computed in float32."""

    name = "float_products"
    gives_sme2_weights = True
    changes = (
        "reshapes of no effect keep XNNPACK from reading the second operand of a product in "
        "float32 as the integers that it was dequantised from"
    )
    legal = "the same numbers: integers times their scale, before the product instead of after it"
    rests_on = (
        "XNNPACK makes QC8W of a dequantised operand whose zero point is 0 (src/subgraph.c, "
        "rewrite_dequant_bmm_at), and floats times QC8W have no SME2 microkernel"
    )

    @classmethod
    def edit(cls, graph: Any) -> int:  # noqa: ANN401
        """Puts the reshapes there; returns how many."""
        return keep_products_float(graph)


_GRAPH_EDITS: Final[tuple[type[GraphEdit], ...]] = (MergedTransposes, FloatProducts)
"""In this order: a reshape that another should see through comes last."""
LOWERING_REWRITES: Final[tuple[type[LoweringRewrite], ...]] = (
    HalfPointwiseWeights,
    DelegatedCasts,
    *_GRAPH_EDITS,
)


def _is_cast(node: torch.fx.Node) -> bool:
    """Whether it changes the element type."""
    source = node.args[0] if node.args else None
    if not isinstance(source, torch.fx.Node):
        return False
    before, after = source.meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    return bool(before.dtype != after.dtype)


class _CastRule(ToDimOrderCopyConfig):  # type: ignore[misc] # ExecuTorch's
    """Takes casts of halves and floats too."""

    def check_constraints(self, node: torch.fx.Node, ep: torch.export.ExportedProgram) -> bool:
        if not _is_cast(node):
            return bool(super().check_constraints(node, ep))
        return self.check_common_constraints(node, ep) and DelegatedCasts.matches(node)


def _cast_visitor(visitor: type[Any]) -> type[Any]:
    class CastVisitor(visitor):  # type: ignore[misc] # ExecuTorch's
        def define_node(
            self,
            node: torch.fx.Node,
            xnn_graph: Any,  # noqa: ANN401
            vals_to_ids: dict[torch.fx.Node, int],
            debug_handle: int,
        ) -> None:
            if not _is_cast(node):
                super().define_node(node, xnn_graph, vals_to_ids, debug_handle)
                return
            source = node.args[0]
            for tensor_node in (source, node):
                self.define_tensor(tensor_node, xnn_graph, vals_to_ids)
            ends = {"input_id": vals_to_ids[source], "output_id": vals_to_ids[node]}  # type: ignore[index]
            convert = XNNConvert(**ends, flags=0)
            xnn_graph.xnodes.append(XNode(xnode_union=convert, debug_handle=debug_handle))

    return CastVisitor


def _pointwise_visitor(visitor: type[Any]) -> type[Any]:
    class PointwiseVisitor(visitor):  # type: ignore[misc] # ExecuTorch's
        _weight: torch.fx.Node | None = None

        def define_node(self, node: torch.fx.Node, *args: Any) -> None:  # noqa: ANN401
            self._weight = node.args[1] if _is_pointwise(node) else None  # type: ignore[assignment]
            super().define_node(node, *args)

        def define_tensor(
            self,
            tensor: torch.fx.Node,
            *args: Any,  # noqa: ANN401
            force_fp32: bool = False,
            **kwargs: Any,  # noqa: ANN401
        ) -> None:
            # Only halves: of quantised weights this node is the dequantised form.
            is_own = tensor is self._weight and tensor.meta["val"].dtype == torch.float16
            super().define_tensor(tensor, *args, force_fp32=force_fp32 and not is_own, **kwargs)

    return PointwiseVisitor


def _is_pointwise(node: torch.fx.Node) -> bool:
    """Whether a convolution has a kernel of 1x1, stride 1, no padding, one group and no transpose.

    For every other the runtime refuses weights in half precision, or has no SME2 microkernel.
    """
    _, weight, _, stride, padding, _, transposed, _, groups = node.args
    kernel = weight.meta["val"].shape[2:]  # type: ignore[union-attr]
    plain = set(kernel) == {1} and set(stride) == {1} and set(padding) == {0}  # type: ignore[arg-type]
    return plain and not transposed and bool(groups == 1)


@contextmanager
def rewritten_lowering(names: Collection[str]) -> Iterator[Counter[str]]:
    """Has the rewrites called `names` in force while the block lowers a model.

    Yields how much those found that see the delegate's graph alone, and no operator.
    """
    visitors, edit_counts = {}, Counter[str]()
    remove = getattr(RemoveRedundantCopyPass, _REMOVE_COPY)
    tag = getattr(ChannelsLastTaggedReshapePass, _TAG_COPY)
    if HalfPointwiseWeights.name in names:
        visitors[_CONVOLUTION] = _pointwise_visitor(_VISITORS[_CONVOLUTION])
    if DelegatedCasts.name in names:
        visitors[_COPY] = _cast_visitor(_VISITORS[_COPY])
        remove, tag = _without_casts(remove), _keep_layout_of_casts(tag)
    with ExitStack() as changed:
        changed.enter_context(patch.dict(_VISITORS, visitors))
        changed.enter_context(patch.object(RemoveRedundantCopyPass, _REMOVE_COPY, remove))
        changed.enter_context(patch.object(ChannelsLastTaggedReshapePass, _TAG_COPY, tag))
        edits = [edit for edit in _GRAPH_EDITS if edit.name in names]
        if edits:
            delegate = getattr(xnnpack_preprocess, _BACKEND)
            editing = staticmethod(_editing(delegate.preprocess, edits, edit_counts))
            changed.enter_context(patch.object(delegate, "preprocess", editing))
        yield edit_counts


def _editing(
    preprocess: Callable[..., Any], edits: Sequence[type[GraphEdit]], edit_counts: Counter[str]
) -> Callable[..., Any]:
    """Returns it with the graph edited before it is serialised; free shapes stay as they are."""
    serialize = getattr(xnnpack_preprocess, _SERIALIZE)

    def edit(graph: Any, *args: Any) -> Any:  # noqa: ANN401 - ExecuTorch's
        for rewrite in edits:
            edit_counts[rewrite.name] += rewrite.named(rewrite.edit)(graph)
        return serialize(graph, *args)

    def run(program: torch.export.ExportedProgram, *specs: Any) -> Any:  # noqa: ANN401
        if not all(map(_is_static, program.graph.nodes)):
            return preprocess(program, *specs)
        with patch.object(xnnpack_preprocess, _SERIALIZE, edit):
            return preprocess(program, *specs)

    return run


def _is_static(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    sizes = value.shape if isinstance(value, torch.Tensor) else ()
    return all(isinstance(size, int) for size in sizes)


def _keep_layout_of_casts(tag: Any) -> Any:  # noqa: ANN401 - the pass's own step
    """A cast of an image has the layout of what it casts, whichever that is."""

    def tag_copy(self: Any, node: torch.fx.Node) -> None:  # noqa: ANN401
        if not _is_cast(node):
            tag(self, node)
            return
        # What it says of its memory is that of the traced graph, in which every image is NCHW.
        node.kwargs = {**node.kwargs, "memory_format": torch.preserve_format}
        is_last = self.is_nhwc_node(node.args[0])
        (self.mark_as_nhwc_node if is_last else self.mark_as_nchw_node)(node)

    return tag_copy


def _without_casts(remove: Any) -> Any:  # noqa: ANN401 - the pass's own step
    """The pass takes a cast for one of two copies that undo each other, and would delete it."""

    def try_remove(self: Any, node: torch.fx.Node, graph: torch.fx.Graph) -> bool:  # noqa: ANN401
        source = node.args[0]
        is_kept = _is_cast(node) or (isinstance(source, torch.fx.Node) and _is_cast(source))
        return False if is_kept else bool(remove(self, node, graph))

    return try_remove


def widen_rules(rules: Sequence[type[Any]], names: Collection[str]) -> list[type[Any]]:
    """Returns the partitioner's rules, widened as the rewrites called `names` need it."""
    if DelegatedCasts.name not in names:
        return list(rules)
    return [_CastRule if rule is ToDimOrderCopyConfig else rule for rule in rules]
