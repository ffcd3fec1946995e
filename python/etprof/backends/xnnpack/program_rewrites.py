"""Rewrites that look at several operators at once, or at how a graph is quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etprof.backends.rewrite import (
    ProgramRewrite,
    QuantizationRewrite,
    describe_missing,
    find_constants,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    import torch

_BATCH_NORM: Final = "aten.batch_norm.default"
_WITH_WEIGHTS: Final = (
    "aten.conv1d.default", "aten.conv2d.default", "aten.conv2d.padding",
    "aten.conv_transpose2d.input", "aten.linear.default",
)  # fmt: skip
_CONVOLUTION, _LINEAR = "aten.conv2d.default", "aten.linear.default"
_CLAMP, _WHERE = "aten.clamp.Tensor", "aten.where.Scalar"
_EXPANDS: Final = (
    "aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default",
)  # fmt: skip
_BROADCASTING: Final = (
    "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor",
)  # fmt: skip
_SAME_VALUE: Final = frozenset(
    {"aten.lift_fresh_copy.default", "aten.detach.default", "aten.detach_.default",
     "aten.alias.default"}
)  # fmt: skip
"""Of a constant these are gone in the lowered graph, whoever folds them."""
_GATHER: Final = "aten.gather.default"
_COPIES: Final = (
    *_EXPANDS, "aten.to.dtype_layout", "aten.slice.Tensor", "aten.unsqueeze.default",
    *sorted(_SAME_VALUE),
)  # fmt: skip
"""Give elements of what they read, `to` in another type where one is asked for."""
CHECK: Final = "aten._assert_tensor_metadata.default"
"""Reads a value's type while a model is traced, and is no part of a program."""
_MOST_STORED: Final = 2**22
"""Elements of constants that are computed at the export: 16 MiB in float32."""


def is_operator(node: object, *names: str) -> bool:
    """Whether a node is a call of one of ATen's operators, such as `aten.linear.default`."""
    return str(getattr(node, "target", "")) in names


def argument_of(node: torch.fx.Node, name: str) -> Any:  # noqa: ANN401 - whatever it is
    """Returns an argument by its name in ATen, wherever it stands; its default where it is not."""
    for index, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name == name:
            value = node.args[index] if index < len(node.args) else argument.default_value
            return node.kwargs.get(name, value)
    raise LookupError(name)


def find_changed(program: torch.export.ExportedProgram) -> set[torch.fx.Node]:
    """Returns the values that an operator changes in place, and all that is computed of them.

    Of these it counts when they are read. A traced program's signature does not say them yet.
    """
    schemas = ((node, getattr(node.target, "_schema", None)) for node in program.graph.nodes)
    roots = {
        origin
        for node, schema in schemas
        if schema is not None and schema.is_mutable and not is_operator(node, *_SAME_VALUE)
        for value in _aliases(node, are_written=True)
        for origin in _origins(value)
    }
    changed: set[torch.fx.Node] = set()
    for node in program.graph.nodes if roots else ():
        if node in roots or not changed.isdisjoint(node.all_input_nodes):
            changed.add(node)
    return changed


def _origins(value: torch.fx.Node) -> list[torch.fx.Node]:
    """Returns a value and what it is a view of, up to the one that has the memory."""
    origins, waiting = [], [value]
    while waiting:
        origins.append(waiting.pop())
        waiting += _aliases(origins[-1], are_written=False)
    return origins


def _aliases(node: torch.fx.Node, *, are_written: bool) -> list[torch.fx.Node]:
    """Returns the inputs whose memory a call changes, or gives on."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        # Picks one of several results, which may be views.
        return [] if are_written or node.op != "call_function" else node.all_input_nodes
    values = [
        argument_of(node, argument.name)
        for argument in schema.arguments
        if argument.alias_info is not None and (argument.alias_info.is_write or not are_written)
    ]
    nodes = [value if isinstance(value, list | tuple) else [value] for value in values]
    return [value for group in nodes for value in group if hasattr(value, "all_input_nodes")]


class FoldedBatchNorms(ProgramRewrite):
    """Batch norms that stand before a product instead of after one."""

    name = "folded_batch_norms"
    changes = (
        "a batch norm whose only reader is a convolution without padding and groups, or a linear "
        "layer of its rows, becomes a part of that layer's weights and bias"
    )
    legal = "the same sums, with one rounding less; zeros of a padding would be shifted, so there are none"
    rests_on = (
        "fuse_batch_norm.py folds norms into the product before them only; of every other it makes "
        "a depthwise convolution (decompose_batch_norm.py), for which there is no SME2 microkernel"
    )

    @classmethod
    def find_problem(cls) -> str | None:
        """Says which of the operators that it looks for PyTorch lacks."""
        return describe_missing((_BATCH_NORM, _CONVOLUTION, _LINEAR))

    @classmethod
    def find_places(cls, program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        """Returns such norms; those that ExecuTorch folds itself are left to it."""
        constants = find_constants(program)
        return [
            node
            for node in program.graph.nodes
            if is_operator(node, _BATCH_NORM)
            and not argument_of(node, "training")
            and not cls._follows_product(node)
            and cls._reader(node, constants) is not None
        ]

    @staticmethod
    def _follows_product(norm: torch.fx.Node) -> bool:
        source: Any = norm.args[0]
        return is_operator(source, _CONVOLUTION, _LINEAR) and len(source.users) == 1

    @staticmethod
    def _reader(norm: torch.fx.Node, constants: set[torch.fx.Node]) -> torch.fx.Node | None:
        """Returns the layer that it can become a part of."""
        readers = list(norm.users)
        reader = readers[0] if len(readers) == 1 else None
        if reader is None or not is_operator(reader, _CONVOLUTION, _LINEAR):
            return None
        parameters: tuple[Any, ...] = (*norm.args[1:5], *reader.args[1:3])
        shape = norm.meta["val"].shape
        is_whole = reader.args[0] is norm and all(
            parameter is None or parameter in constants for parameter in parameters
        )
        if not is_whole or not all(isinstance(size, int) for size in shape):
            return None
        if is_operator(reader, _LINEAR):
            return reader if len(shape) == 2 else None
        padding = argument_of(reader, "padding")
        is_plain = (
            not any(padding) if isinstance(padding, list | tuple) else padding in {0, "valid"}
        )
        return reader if is_plain and argument_of(reader, "groups") == 1 else None

    @classmethod
    def edit(cls, program: torch.export.ExportedProgram, norm: torch.fx.Node) -> None:
        """Scales the reader's weights, and adds to its bias what the norm adds."""
        import torch

        (reader,) = norm.users
        graph, aten = program.graph, torch.ops.aten
        metadata = {name: value for name, value in reader.meta.items() if name != "val"}

        def call(target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:  # noqa: ANN401
            node: torch.fx.Node = graph.call_function(target, args, kwargs)
            node.meta = dict(metadata)
            return node

        def wide(node: Any) -> torch.fx.Node:  # noqa: ANN401
            return call(aten._to_copy.default, node, dtype=torch.float32)

        _, factor, offset, mean, variance = (argument_of(norm, name) for name in
            ("input", "weight", "bias", "running_mean", "running_var"))  # fmt: skip
        weight, bias = argument_of(reader, "weight"), argument_of(reader, "bias")
        dtype, axes = weight.meta["val"].dtype, weight.meta["val"].dim()
        row = [1, -1, *[1] * (axes - 2)]
        with graph.inserting_before(reader):
            scale = call(aten.rsqrt.default,
                         call(aten.add.Tensor, wide(variance), argument_of(norm, "eps")))  # fmt: skip
            if factor is not None:
                scale = call(aten.mul.Tensor, scale, wide(factor))
            shift = call(aten.neg.default, call(aten.mul.Tensor, wide(mean), scale))
            if offset is not None:
                shift = call(aten.add.Tensor, shift, wide(offset))
            scaled = call(aten.mul.Tensor, wide(weight), call(aten.view.default, scale, row))
            added = call(aten.mul.Tensor, wide(weight), call(aten.view.default, shift, row))
            more = call(aten.sum.dim_IntList, added, list(range(1, axes)))
            if bias is not None:
                more = call(aten.add.Tensor, more, wide(bias))
            weights = [
                call(aten._to_copy.default, tensor, dtype=dtype) for tensor in (scaled, more)
            ]
        reader.args = (norm.args[0], *weights, *reader.args[3:])
        graph.erase_node(norm)


class FoldedConstants(ProgramRewrite):
    """Masks, tables and positions that each inference would compute again."""

    name = "folded_constants"
    changes = (
        "what depends on no input is computed once, at the export, and stored; so is what an input "
        "chooses by `gather` from a constant whose elements are all equal"
    )
    legal = "the same values; buffers that the program changes and random numbers are left alone"
    rests_on = "ExecuTorch computes them in each inference, most of it outside the delegate"

    @classmethod
    def find_problem(cls) -> str | None:
        """Says that PyTorch lacks `gather`; what folds is etprof's own use of ExecuTorch's pass."""
        return describe_missing((_GATHER,))

    @classmethod
    def find_places(cls, program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        """Returns the operators whose inputs, if there are any, are constants.

        None where all that would be stored instead is larger than a program should become.
        """
        checks = {node for node in program.graph.nodes if is_operator(node, CHECK)}
        for choices in (cls._find_choices(program), frozenset[Any]()):
            constants = find_constants(program, choices)
            calls = [
                node
                for node in program.graph.nodes
                if node in constants and node.op == "call_function"
            ]
            stored = [call for call in calls if not set(call.users) <= constants | checks]
            if sum(call.meta["val"].numel() for call in stored) <= _MOST_STORED:
                return [call for call in calls if not is_operator(call, *_SAME_VALUE)]
        return []

    @staticmethod
    def _find_choices(program: torch.export.ExportedProgram) -> frozenset[torch.fx.Node]:
        """Returns what inputs choose among equal constants."""
        constants, changed = find_constants(program), find_changed(program)
        return frozenset(
            node
            for node in program.graph.nodes
            if is_operator(node, _GATHER)
            and node not in changed
            and _value_of_all(program, node, constants) is not None
        )

    @classmethod
    def find_reached(cls, nodes: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
        """Returns the products whose weights are among them: XNNPACK takes weights that are stored."""
        constants = set(nodes)
        readers = dict.fromkeys(user for node in constants for user in node.users)
        return [
            reader
            for reader in readers
            if is_operator(reader, *_WITH_WEIGHTS) and reader.args[1] in constants
        ]

    @classmethod
    def edit(cls, program: torch.export.ExportedProgram, node: torch.fx.Node) -> None:
        """Writes what is chosen as a constant; constants are folded after every rewriting."""
        import torch

        # What reads a choice is a place too, also where the choice's module is left as it is.
        is_choice = is_operator(node, _GATHER)
        value = _value_of_all(program, node, find_constants(program)) if is_choice else None
        if value is None:
            return
        chosen = node.meta["val"]
        with program.graph.inserting_before(node):
            new = program.graph.call_function(
                torch.ops.aten.full.default, (list(chosen.shape), value), {"dtype": chosen.dtype}
            )
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        program.graph.erase_node(node)


def _value_of_all(
    program: torch.export.ExportedProgram,
    choice: torch.fx.Node,
    constants: Container[torch.fx.Node],
) -> float | None:
    """Returns the number that all elements are which `choice` chooses among; None if they differ.

    RoBERTa's types of tokens are such: a buffer of zeros, of which each position chooses one.
    """
    source: Any = choice.args[0]
    dtype = choice.meta["val"].dtype
    while (
        source in constants and source.meta["val"].dtype == dtype and is_operator(source, *_COPIES)
    ):
        source = source.args[0]
    is_static = all(isinstance(size, int) for size in choice.meta["val"].shape)
    if source not in constants or source.op != "placeholder" or not is_static:
        return None
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    name = targets[source.name] or ""
    tensor = program.state_dict.get(name, program.constants.get(name))
    if tensor is None or not tensor.numel() or tensor.dtype != dtype:
        return None
    first = tensor.flatten()[0]
    number: float = first.item()
    return number if bool((tensor == first).all()) else None


class PlainBroadcasts(ProgramRewrite):
    """Values that are expanded for operators that broadcast them anyway."""

    name = "plain_broadcasts"
    changes = "an expand that only sums, differences, products and quotients read is left out"
    legal = "these operators broadcast the value to the same shape themselves"
    rests_on = "XNNPACK's partitioner takes operators that broadcast, and no expand"

    @classmethod
    def find_problem(cls) -> str | None:
        """Says which of the operators that it looks for PyTorch lacks."""
        return describe_missing((*_EXPANDS, *_BROADCASTING))

    @classmethod
    def find_places(cls, program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        """Returns expands of which every reader has the same result without them, all taken together."""
        places: dict[torch.fx.Node, None] = {}
        for node in program.graph.nodes:
            if not is_operator(node, *_EXPANDS):
                continue
            together = places | {node: None}
            if all(cls._broadcasts(reader, together) for reader in node.users):
                places = together
        return list(places)

    @staticmethod
    def _broadcasts(reader: torch.fx.Node, expands: Container[torch.fx.Node]) -> bool:
        """Whether a reader's result has the same shape without these expands."""
        import torch

        if not is_operator(reader, *_BROADCASTING):
            return False
        operands: list[Any] = [node for node in reader.args[:2] if isinstance(node, torch.fx.Node)]
        sources: list[Any] = [node.args[0] if node in expands else node for node in operands]
        shapes = [tuple(node.meta["val"].shape) for node in (*sources, reader)]
        if not all(isinstance(size, int) for shape in shapes for size in shape):
            return False
        rank = len(shapes[-1])
        aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes[:-1]]
        # The reader's trace has checked that the sizes agree.
        return tuple(map(max, *aligned)) == shapes[-1] if len(aligned) > 1 else False

    @classmethod
    def edit(cls, program: torch.export.ExportedProgram, node: torch.fx.Node) -> None:
        """Gives the readers what was expanded."""
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        program.graph.erase_node(node)


class FixedClamps(ProgramRewrite):
    """Values that are clamped otherwise where one of them is infinite, as T5 does in half precision."""

    name = "fixed_clamps"
    changes = (
        "a clamp to one number where a value is infinite, and to another where none is, becomes a "
        "clamp to the smaller number"
    )
    legal = "the same up to the smaller number; larger values become it also where none is infinite"
    rests_on = "XNNPACK's partitioner takes a clamp between constants, and no isinf, any and where"

    @classmethod
    def find_problem(cls) -> str | None:
        """Says which of the operators that it looks for PyTorch lacks."""
        return describe_missing((_CLAMP, _WHERE, "aten.any.default", "aten.isinf.default"))

    @classmethod
    def find_places(cls, program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        """Returns such clamps, symmetric ones to constants of their own input's infinities."""
        return [
            node for node in program.graph.nodes if is_operator(node, _CLAMP) and cls._bounds(node)
        ]

    @staticmethod
    def _bounds(clamp: torch.fx.Node) -> list[float]:
        """Returns both numbers; none where it is another clamp."""
        value, low, high = (argument_of(clamp, name) for name in ("self", "min", "max"))
        is_symmetric = is_operator(low, "aten.neg.default") and low.args[0] is high
        if not is_symmetric or not is_operator(high, _WHERE):
            return []
        condition, *bounds = high.args
        asks: Any = condition.args[0] if is_operator(condition, "aten.any.default") else None
        is_own = is_operator(asks, "aten.isinf.default") and asks.args[0] is value
        is_number = all(isinstance(bound, int | float) and bound > 0 for bound in bounds)
        return bounds if is_own and is_number else []

    @classmethod
    def edit(cls, program: torch.export.ExportedProgram, node: torch.fx.Node) -> None:
        """Clamps to the number."""
        import torch

        bound = min(cls._bounds(node))
        with program.graph.inserting_before(node):
            clamp = program.graph.call_function(
                torch.ops.aten.clamp.default, (node.args[0], -bound, bound)
            )
        clamp.meta = dict(node.meta)
        node.replace_all_uses_with(clamp)
        program.graph.erase_node(node)


class StaticConvolutions(QuantizationRewrite):
    """Convolutions whose inputs would be quantised anew in each inference."""

    name = "static_convolutions"
    gives_sme2_weights = True
    changes = (
        "where activations are quantised dynamically, convolutions get fixed scales from the "
        "calibration inputs, those too that would stay in float32; linear layers stay as they are"
    )
    legal = (
        "fixed scales hold for inputs like the calibration's: the outputs differ by their rounding"
    )
    rests_on = (
        "XNNPACK has SME2 microkernels for convolutions of fixed scales (QS8), and none for dynamic "
        "ones (QD8, src/operators/convolution-nhwc.c)"
    )

    @classmethod
    def find_problem(cls) -> str | None:
        """Says that the quantiser has no such choice."""
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

        has_parts = hasattr(xnnpack_quantizer, "CONV_TARGETS") and hasattr(
            xnnpack_quantizer.XNNPACKQuantizer, "set_operator_type"
        )
        return None if has_parts else "XNNPACK's quantiser cannot be told of convolutions alone"

    @classmethod
    def matches(cls, node: torch.fx.Node) -> bool:
        """Whether it is a convolution whose input's scale is computed."""
        return _name(node).startswith("convolution") and _is_dynamic(node)

    @classmethod
    def count(cls, module: torch.nn.Module) -> int:
        """Returns how many convolutions read a value of fixed scale."""
        graph: Any = module.graph
        return sum(
            _name(node).startswith("conv")
            and _name(node.args[0]).startswith("dequantize")
            and not _is_dynamic(node)
            for node in graph.nodes
            if node.op == "call_function" and node.args
        )


def _name(node: object) -> str:
    """Returns the operator's name without its namespace."""
    return getattr(getattr(node, "target", None), "__name__", "").rpartition("aten.")[2]


def _is_dynamic(node: torch.fx.Node) -> bool:
    source: Any = node.args[0]
    numbers: Sequence[Any] = source.args[1:3] if "dequantize" in _name(source) else ()
    return any(hasattr(number, "op") for number in numbers)


PROGRAM_REWRITES: Final = (
    FoldedBatchNorms, FoldedConstants, PlainBroadcasts, FixedClamps, StaticConvolutions,
)  # fmt: skip
