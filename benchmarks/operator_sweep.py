"""Holds every operator that the zoo and public architectures use against eager, one by one.

    python benchmarks/operator_sweep.py [--models LIST] [--precisions LIST] [--target local|emulator]
                                        [--into FILE]

Each model of precision_zoo.py is traced and computed once. Of each ATen operator, and of each kind of
convolution, the call with the longest sums and that with the largest offset (mean ÷ deviation, where
sums in half precision lose most) are kept with the values they had: those of a random network, so that
no square root is of a negative number and no index is out of range. The worse one is told. All of them
become one program in each precision, in which none reads another's result. `etprof numerics` then runs it in every
SME mode and gives each operator's error against eager in the same precision, beside what roundings
explain. `fp16 as is` leaves the sums that etprof takes to float32 to ExecuTorch (docs/export.md). The
table is Markdown; `--into` puts it between the marks of a page. Takes about 10 minutes of processor
time, half of it for tracing; `--models` takes less.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from precision_zoo import ARCHITECTURES, find_loadable, model_of, put
from torch import nn
from torch.utils import _pytree as pytree

from etprof.base.errors import EtprofError
from etprof.export import lowering, model_loading, operators, tensors
from etprof.export.quality.reference import in_float32
from etprof.export.request import ExportOptions, ExportRequest
from etprof.export.session import SEED
from etprof.numerics import taps
from etprof.numerics.session import GapRequest, compare_with_eager
from etprof.targets.registry import KINDS, make_target

if TYPE_CHECKING:
    from etprof.analysis.numeric_gap import OperatorGap
    from etprof.targets import Target

MARKS = ("<!-- operator_sweep.py -->", "<!-- end of operator_sweep.py -->")
AS_IS = "fp16 as is"
USUAL = ("fp32", AS_IS, "fp16", "int8", "8da4w")
LIKE_FLOAT32_DB = 100.0
"""In a quantised program: the operator was not quantised."""
_FEWEST_VALUES = 2
_PATH = re.compile(r"/\S*/")
_MOVES = frozenset({"clone", "detach", "alias", "dropout", "lift_fresh_copy", "contiguous", "to"})


@dataclass(frozen=True)
class Place:
    """Stands for a tensor among an operator's arguments."""

    index: int
    is_weight: bool


@dataclass
class Use:
    """One call of an operator, with its values."""

    kind: str
    """The operator's name, and of a convolution what it is like."""
    target: str
    arguments: Any
    """As in the graph, with a Place for each tensor."""
    inputs: list[torch.Tensor]
    weights: list[torch.Tensor]
    summed: float
    """Products in each of its sums."""
    reduced: float
    """Values that a reduction makes one of, or that a norm divides."""
    models: set[str] = field(default_factory=set)

    def rank(self) -> tuple[float, float, int]:
        """Orders the calls of an operator by the length of their sums."""
        return self.summed, self.reduced, sum(each.numel() for each in self.inputs)

    def offset(self) -> float:
        """Returns how large the mean of the first floating-point input is beside its deviation."""
        values = next((each for each in self.inputs if each.is_floating_point()), None)
        if values is None or values.numel() < _FEWEST_VALUES:
            return 0.0
        deviation = float(values.double().std())
        return float(values.double().mean().abs()) / deviation if deviation else 0.0


class Operator(nn.Module):
    """One call as a module; a linear layer is PyTorch's own, which torchao looks for."""

    def __init__(self, use: Use) -> None:
        super().__init__()
        self.use = use
        packet, _, overload = use.target.removeprefix("aten.").partition(".")
        self.target = getattr(getattr(torch.ops.aten, packet), overload)
        self.linear: nn.Linear | None = None
        if packet == "linear" and all(each.dim() == 2 for each in use.weights[:1]) and use.weights:
            weight, *bias = use.weights
            self.linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bool(bias))
            self.linear.weight.data = weight
            if bias:
                self.linear.bias.data = bias[0]
            return
        for index, weight in enumerate(use.weights):
            self.register_buffer(f"weight_{index}", weight)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the tensors among the operator's results."""
        if self.linear is not None:
            return (self.linear(*inputs),)

        def value_of(place: Any) -> Any:  # noqa: ANN401 - an argument
            if not isinstance(place, Place):
                return place
            return (
                getattr(self, f"weight_{place.index}") if place.is_weight else inputs[place.index]
            )

        args, kwargs = pytree.tree_map(value_of, self.use.arguments)
        found = pytree.tree_leaves(self.target(*args, **kwargs))
        return tuple(each for each in found if isinstance(each, torch.Tensor))


class Operators(nn.Module):
    """Many operators beside each other."""

    def __init__(self, uses: Iterable[Use]) -> None:
        super().__init__()
        self.uses = nn.ModuleList(map(Operator, uses))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns what each of them gives for its own part of the inputs."""
        found: list[torch.Tensor] = []
        start = 0
        for each in self.uses:
            assert isinstance(each, Operator)
            end = start + len(each.use.inputs)
            found += each(*inputs[start:end])
            start = end
        return tuple(found)


class Batch:
    """A model as etprof exports it; its subclass says where the uses are."""

    path = ""

    def get_eager_model(self) -> nn.Module:
        """Returns all operators as one model."""
        return Operators(torch.load(self.path, weights_only=False))

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        """Returns the values that each of them had."""
        uses = torch.load(self.path, weights_only=False)
        return tuple(value for use in uses for value in use.inputs)


class _Harvest(torch.fx.Interpreter):
    """Computes a traced model, and keeps the call with the longest sums of each operator."""

    def __init__(
        self, module: torch.fx.GraphModule, model: str, found: dict[str, tuple[Use, ...]]
    ) -> None:
        super().__init__(module)
        self._model, self._found = model, found

    def run_node(self, n: torch.fx.Node) -> Any:  # noqa: ANN401 - a node's value
        """Computes a node, and keeps it where it computes something."""
        args = self.fetch_args_kwargs_from_env(n)
        value = super().run_node(n)
        if _computes(n, value):
            use = _make_use(n, args)
            before = self._found.get(use.kind, ())
            models = {self._model}.union(*(each.models for each in before))
            # Of equals the first stays, so that a run says what the one before it said.
            longest = max((*before, use), key=Use.rank)
            steepest = max((*before, use), key=Use.offset)
            kept = (longest,) if steepest is longest else (longest, steepest)
            for each in kept:
                each.models = models
            self._found[use.kind] = kept
        return value


def _computes(node: torch.fx.Node, value: object) -> bool:
    name = operators.target_name(node).partition(".")[0]
    is_aten = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten"
    gives = [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]
    is_float = bool(gives) and all(each.is_floating_point() for each in gives)
    reads = any(isinstance(each.meta.get("val"), torch.Tensor) for each in node.all_input_nodes)
    is_view = getattr(node.target, "is_view", False)
    return node.op == "call_function" and is_aten and is_float and reads and not is_view and (
        name not in _MOVES
    )  # fmt: skip


def _make_use(node: torch.fx.Node, given: Any) -> Use:  # noqa: ANN401 - arguments
    inputs: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []

    def place_of(argument: Any, value: Any) -> Any:  # noqa: ANN401 - an argument and its value
        if not isinstance(value, torch.Tensor):
            return value
        is_weight = isinstance(argument, torch.fx.Node) and argument.op == "get_attr"
        kept = weights if is_weight else inputs
        # Programs take inputs without gaps, in the order of their dimensions.
        kept.append(value.detach().clone(memory_format=torch.contiguous_format))
        return Place(len(kept) - 1, is_weight)

    flat, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
    places = list(map(place_of, flat, pytree.tree_leaves(given)))
    name = str(node.target).removeprefix("aten.")
    packet, _, overload = name.partition(".")
    plain = packet.removesuffix("_")
    if plain != packet and hasattr(torch.ops.aten, plain):
        packet = plain
    return Use(
        kind=_kind_of(packet, node),
        target=f"aten.{packet}.{overload}",
        arguments=pytree.tree_unflatten(places, spec),
        inputs=inputs,
        weights=weights,
        summed=max(1.0, taps.count_summed(node)),
        reduced=_count_reduced(packet, inputs, weights, node),
    )


def _count_reduced(
    packet: str,
    inputs: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    node: torch.fx.Node,
) -> float:
    if packet in {"layer_norm", "rms_norm"} and weights:
        return float(weights[0].numel())
    value = node.meta.get("val")
    size = value.numel() if isinstance(value, torch.Tensor) else 1
    return inputs[0].numel() / max(size, 1) if inputs else 1.0


def _kind_of(packet: str, node: torch.fx.Node) -> str:
    """Names an operator; convolutions by their kernel and groups, since their kernels differ."""
    if not packet.startswith("conv") or len(node.all_input_nodes) < 2:
        return packet
    image, weight = (operators.shape_of(each) or [] for each in node.all_input_nodes[:2])
    if weight[1] == 1 and image[1] > 1:
        return f"{packet}, depthwise"
    if image[1] != weight[1] and "transpose" not in packet:
        return f"{packet}, grouped"
    return f"{packet}, pointwise" if set(weight[2:]) == {1} else packet


def harvest(models: Iterable[str]) -> dict[str, tuple[Use, ...]]:
    """Returns one or two calls of each operator that these models use, by kind."""
    found: dict[str, tuple[Use, ...]] = {}
    for model in models:
        torch.manual_seed(SEED)
        for name, method in model_loading.load_methods(model_of(model)).items():
            wide = in_float32(method, torch.float32)
            module = lowering.trace(name, wide).module(check_guards=False)
            assert isinstance(module, torch.fx.GraphModule)
            inputs = tensors.flatten((wide.inputs, dict(wide.kwarg_inputs)))
            with torch.no_grad():
                _Harvest(module, model, found).run(*inputs, enable_io_processing=False)
        print(f"{model}: {len(found)} operators so far", file=sys.stderr, flush=True)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Found:
    """What one operator gave in one precision."""

    modes: Mapping[str, OperatorGap]
    """Its worst row in each SME mode; none where `note` says why."""
    note: str = "–"
    """`–` for what only moves values."""
    problem: str = ""
    """Why it was not exported, or failed when it ran."""

    def render(self) -> str:
        """Returns one figure, or one for each mode where they differ; bold where it parts."""
        cells = {mode: _cell(row) for mode, row in self.modes.items()}
        if len(set(cells.values())) < 2:
            return next(iter(cells.values()), self.note)
        return " · ".join(f"{mode} {cell}" for mode, cell in cells.items())

    def is_bad(self) -> bool:
        """Whether it adds more than its precision explains in some mode."""
        return any(row.excess > 1 for row in self.modes.values())

    def badness(self) -> float:
        """Orders what several calls of an operator gave; one that fails comes before all."""
        worst = max((row.excess for row in self.modes.values()), default=-1.0)
        return float("inf") if self.problem else worst


def _cell(row: OperatorGap) -> str:
    text = "equal" if row.own_gap.snr_db is None else f"{row.own_gap.snr_db:.0f}"
    return f"**{text}**" if row.excess > 1 else text


def measure(uses: Sequence[Use], precision: str, target: Target) -> dict[str, Found]:
    """Runs them as one program; halves them until what fails stands alone."""
    try:
        return _measure(uses, precision, target)
    except EtprofError as error:
        if len(uses) == 1:
            print(f"{uses[0].kind} {precision}: {error}", file=sys.stderr, flush=True)
            reason = _PATH.sub("", str(error))
            return {uses[0].kind: Found({}, "fails", reason)}
    half = len(uses) // 2
    found = measure(uses[:half], precision, target)
    for kind, one in measure(uses[half:], precision, target).items():
        found[kind] = max(found.get(kind, one), one, key=Found.badness)
    return found


def _measure(uses: Sequence[Use], precision: str, target: Target) -> dict[str, Found]:
    with tempfile.TemporaryDirectory() as name:
        kept, code = Path(name) / "uses.pt", Path(name) / "model.py"
        torch.save(list(uses), kept)
        code.write_text(_MODEL.format(here=str(Path(__file__).parent), kept=str(kept)))
        options = ExportOptions(keep_fp16_sums=precision == AS_IS)
        export = ExportRequest(f"{code}:Kept", precision.removesuffix(" as is"), options=options)
        gaps = compare_with_eager(GapRequest(export=export), target)
    found: dict[str, dict[str, OperatorGap]] = {use.kind: {} for use in uses}
    for row in sorted(gaps.rows, key=lambda row: row.excess):
        parts = row.module.split(".")
        if parts[0] == "uses":
            found[uses[int(parts[1])].kind][row.mode] = row
    is_quantized = export.parsed_precision().quantization is not None
    return {kind: _make_found(modes, is_quantized) for kind, modes in found.items()}


def _make_found(modes: Mapping[str, OperatorGap], is_quantized: bool) -> Found:
    wide = [row.float32 for row in modes.values()]
    if is_quantized and modes and not any(each and each.is_below(LIKE_FLOAT32_DB) for each in wide):
        return Found({}, "float32")
    return Found(dict(sorted(modes.items(), reverse=True)))


_MODEL = """\
import sys
sys.path.append({here!r})
from operator_sweep import Batch
class Kept(Batch):
    path = {kept!r}
"""


def main() -> int:
    """Prints the table; returns 1 when an operator could be measured in no precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=lambda text: text.split(","))
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=USUAL)
    parser.add_argument("--target", choices=KINDS, default="emulator")
    parser.add_argument("--into", type=Path)
    arguments = parser.parse_args()
    target = make_target(arguments.target, {}, "--target")
    uses = harvest(arguments.models or [*find_loadable(), *ARCHITECTURES])
    found: dict[str, dict[str, Found]] = {}
    alone: set[str] = set()
    for precision in arguments.precisions:
        together = [use for kind, each in uses.items() if kind not in alone for use in each]
        found[precision] = measure(together, precision, target)
        for kind in alone:
            found[precision] |= measure(uses[kind], precision, target)
        alone |= {kind for kind, one in found[precision].items() if one.problem}
    lines = list(_render(uses, found))
    print("\n".join(lines))
    if arguments.into is not None:
        put(arguments.into, MARKS, lines)
    measured = {kind for each in found.values() for kind, one in each.items() if one.modes}
    return 0 if measured else 1


def _render(
    uses: Mapping[str, Sequence[Use]], found: Mapping[str, Mapping[str, Found]]
) -> Iterable[str]:
    """Yields the operators that compute something, and those that are bad in words."""
    yield f"| operator | models | sums | {' | '.join(found)} |"
    yield f"|{'---|' * (3 + len(found))}"
    for kind, (use, *_) in uses.items():
        own = [each[kind] for each in found.values()]
        if any(one.modes or one.note != "–" for one in own):
            cells = " | ".join(one.render() for one in own)
            summed = "–" if use.summed <= 1 else f"{use.summed:.0f}"
            yield f"| {kind} | {len(use.models)} | {summed} | {cells} |"
    yield ""
    for precision, each in found.items():
        bad = ", ".join(kind for kind, one in each.items() if one.is_bad()) or "none"
        yield f"- More error than {precision} explains: {bad}."
        for kind, one in each.items():
            if one.problem:
                yield f"- {kind} fails in {precision}: {one.problem}."


if __name__ == "__main__":
    # Pickled classes have to be those of the module that a kept model imports.
    import operator_sweep

    sys.exit(operator_sweep.main())
