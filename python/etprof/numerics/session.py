"""Runs a program with taps in every SME mode of a target, and compares each operator with eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from etprof.analysis.numeric_gap import (
    NumericGaps,
    OperatorGap,
    explain_dynamic_product,
    explain_error,
    measure_gap,
)
from etprof.base.atomic import scratch_folder
from etprof.base.errors import ExportError, UsageError
from etprof.base.records import sme_label
from etprof.export import lowering, model_loading, operators, runtime_check, tensors, upstream
from etprof.export.changes.half_constants import HalfPrecisionMode
from etprof.export.changes.rewriting import plan_rewriting
from etprof.export.quality.reference import in_float32
from etprof.export.session import SEED, ExportSession
from etprof.export.stages import StageClock
from etprof.export.state import unchanged_buffers
from etprof.numerics import taps

if TYPE_CHECKING:
    from etprof.analysis.numeric_gap import Gap, PrecisionError
    from etprof.export.request import ExportRequest, Precision
    from etprof.export.session import PreparedMethods
    from etprof.export.stages import StageListener
    from etprof.model_registry.eager_model import ExportMethod
    from etprof.numerics.taps import Tap
    from etprof.targets import Target

MOST_BYTES: Final = 128 * 2**20
"""Of tapped values that one program gives; a program keeps all of its outputs until it ends."""
Read = Callable[[], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class GapRequest:
    """What to compare, and how."""

    export: ExportRequest
    method: str | None = None
    """None: `forward`, or the first."""
    program: Path | None = None
    """A program that was exported so, whose outputs are compared with those of the tapped one."""
    modes: tuple[str, ...] = ()
    """SME modes to run in; empty: all that the target has."""
    most_bytes: int = MOST_BYTES
    most_taps: int | None = None
    """Taps of one program."""
    taps_fused: bool = False
    """Whether operators that the delegate makes one of are tapped too, which keeps it from that."""


@dataclass
class ModeOutputs:
    """What one SME mode computed."""

    outputs: list[Read] = field(default_factory=list)
    """Of the program without taps."""
    tapped_outputs: list[Read] = field(default_factory=list)
    values: dict[str, Read] = field(default_factory=dict)
    """Tapped values, by the node whose value it is."""


@dataclass(frozen=True)
class TappedPrograms:
    """A traced method, lowered without taps and with them."""

    method: str
    inputs: Sequence[Any]
    """Flat, as the graph takes them."""
    traced: torch.export.ExportedProgram
    untapped: Path
    tapped: dict[Path, list[Tap]]
    delegates: Mapping[str, int]
    prevented: tuple[str, ...]


def compare_with_eager(
    request: GapRequest, target: Target, listener: StageListener | None = None
) -> NumericGaps:
    """Exports, runs and compares; raises as an export and a launch do.

    Raises UsageError for a method or a mode that is not there.
    """
    modes = _choose_modes(request.modes, target)
    clock = StageClock(listener)
    with scratch_folder("numerics") as folder, upstream.quiet_upstream():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            request, session = start_export(request, clock)
            prepared = session.prepare()
        method = _choose_method(prepared.methods, request.method)
        with clock.stage("lower with taps"):
            programs = make_programs(request, session, prepared, method, folder)
        launched = {}
        for mode in modes:
            with clock.stage(f"run, {sme_label(mode)}"):
                launched[mode] = launch(programs, target, mode, folder / mode)
        with clock.stage("compare with eager"):
            return _compare(request, target, programs, launched)


def _choose_modes(requested_modes: tuple[str, ...], target: Target) -> tuple[str, ...]:
    target_modes = target.sme_modes()
    for mode in requested_modes:
        if mode not in target_modes:
            raise UsageError(
                f"--sme {mode}: the CPU of {target.platform} has {', '.join(target_modes)}; choose of these, "
                "or --target emulator"
            )
    return tuple(mode for mode in target_modes if not requested_modes or mode in requested_modes)


def _choose_method(methods: Mapping[str, ExportMethod], method: str | None) -> str:
    name = method or ("forward" if "forward" in methods else next(iter(methods)))
    if name not in methods:
        raise UsageError(f"the model has no method {name!r}; it has {', '.join(methods)}")
    return name


def start_export(request: GapRequest, clock: StageClock) -> tuple[GapRequest, ExportSession]:
    """Returns an export of what is asked for, and the request with its rewrites by name."""
    export = request.export
    session = ExportSession(export, export.files(), clock)
    session.rewriting = plan_rewriting(export)
    options = replace(export.options, rewrites=tuple(session.rewriting.names))
    return replace(request, export=replace(export, options=options)), session


def make_programs(
    request: GapRequest, session: ExportSession, prepared: PreparedMethods, name: str, folder: Path
) -> TappedPrograms:
    """Lowers without taps, which says where to tap, and with them."""
    traced = session.rewriting.before_lowering(lowering.trace(name, prepared.methods[name]))
    backend, options = request.export.backend, request.export.options
    shared = prepared.shared_buffers
    constants = dict(traced.constants)
    plain = lowering.lower({name: traced}, backend, options)
    # Lowering takes them out; the copies with taps need them.
    traced.constants.update(constants)
    fusions = taps.find_fusions(plain, name, traced.graph)
    untapped = request.program or folder / "untapped.pte"
    if request.program is None:
        untapped.write_bytes(lowering.make_program(plain.edge, options, shared).buffer)
    del plain
    selected = taps.choose_taps(traced.graph, () if request.taps_fused else fusions)
    if not selected:
        raise ExportError(f"method {name!r} has no operator that gives floating-point values")
    tapped: dict[Path, list[Tap]] = {}
    delegates: dict[str, int] = {}
    kept_fusions: set[tuple[str, ...]] = set()
    for group in taps.split_passes(selected, request.most_bytes, request.most_taps):
        copied = taps.add_taps(traced, group)
        lowered = taps.lower_tapped(name, copied, backend, options)
        # A fusion counts as kept where the taps of every pass leave it.
        pass_fusions = taps.find_fusions(lowered, name, copied.graph)
        kept_fusions = pass_fusions if not tapped else kept_fusions & pass_fusions
        delegates |= taps.find_delegates(lowered, name, copied.graph)
        path = folder / f"tapped_{len(tapped)}.pte"
        path.write_bytes(lowering.make_program(lowered.edge, options, shared).buffer)
        tapped[path] = group
    prevented = tuple(taps.name_fusions(fusions - kept_fusions))
    method = prepared.methods[name]
    inputs = tensors.flatten((method.inputs, dict(method.kwarg_inputs)))
    return TappedPrograms(name, inputs, traced, untapped, tapped, delegates, prevented)


def launch(programs: TappedPrograms, target: Target, mode: str, folder: Path) -> ModeOutputs:
    """Runs every program once in one SME mode."""
    external = programs.untapped.with_suffix(".ptd")
    launched = ModeOutputs()
    output_count = len(programs.traced.graph_signature.user_outputs)
    for number, path in enumerate((programs.untapped, *programs.tapped)):
        launch_folder = folder / str(number)
        launch_folder.mkdir(parents=True)
        data = external if number == 0 and external.is_file() else None
        request = runtime_check.make_request(
            path, data, programs.method, [programs.inputs], launch_folder
        )
        target.run(replace(request, sme=mode))
        outputs = runtime_check.find_outputs(request)
        if number == 0:
            launched.outputs = outputs
            continue
        launched.tapped_outputs = launched.tapped_outputs or outputs[:output_count]
        group = programs.tapped[path]
        launched.values |= zip(
            (tap.tapped_node.name for tap in group), outputs[output_count:], strict=True
        )
    return launched


def _compare(
    request: GapRequest,
    target: Target,
    programs: TappedPrograms,
    launched: Mapping[str, ModeOutputs],
) -> NumericGaps:
    selected = [tap for group in programs.tapped.values() for tap in group]
    inherited = _compare_inherited(programs, launched)
    precision = request.export.parsed_precision()
    own_gaps = {
        mode: compare_own(programs, outputs, precision) for mode, outputs in launched.items()
    }
    wide = _compare_float32(request, programs.method, selected, launched)
    delegates = programs.delegates
    rows = tuple(
        OperatorGap(
            **_describe(order, tap, delegates),
            mode=mode,
            own_gap=own_gaps[mode][tap.tapped_node.name][0],
            explained=own_gaps[mode][tap.tapped_node.name][1],
            eager=inherited[mode, "eager"][tap.tapped_node.name],
            float32=wide.get(mode, {}).get(tap.node.name),
            off=inherited.get((mode, "off"), {}).get(tap.tapped_node.name),
        )
        for order, tap in enumerate(selected)
        for mode in launched
    )
    return NumericGaps(
        model=request.export.model_name(),
        backend=request.export.backend,
        precision=precision.name,
        method=programs.method,
        platform=target.platform,
        passes=len(programs.tapped),
        rows=rows,
        prevented=programs.prevented,
        checks={mode: _check_taps(outputs) for mode, outputs in launched.items()},
    )


def _describe(order: int, tap: Tap, delegates: Mapping[str, int]) -> dict[str, Any]:
    origin = operators.find_origin(tap.node)
    line = origin.source
    return {
        "order": order,
        "node": tap.node.name,
        "operator": tap.operator,
        "module": origin.module_path,
        "source": None if line is None else f"{line.file}:{line.line}",
        "shape": tuple(operators.shape_of(tap.tapped_node) or ()),
        "dtype": tensors.dtype_name(tap.tapped_node.meta["val"]),
        "delegate": delegates.get(tap.node.name),
    }


def _compare_inherited(
    programs: TappedPrograms, launched: Mapping[str, ModeOutputs]
) -> dict[tuple[str, str], dict[str, Gap]]:
    """Returns by mode and reference how far each value is from eager's, and from SME off's."""
    gaps: dict[tuple[str, str], dict[str, Gap]] = {}
    off = launched.get("off")

    def observe(name: str, value: torch.Tensor) -> torch.Tensor:
        before = off.values[name]() if off is not None and name in off.values else None
        for mode, outputs in launched.items():
            if name in outputs.values:
                actual = outputs.values[name]()
                gaps.setdefault((mode, "eager"), {})[name] = _gap_between(actual, value)
                if before is not None and mode != "off":
                    gaps.setdefault((mode, "off"), {})[name] = _gap_between(actual, before)
        return value

    _walk(programs.traced, programs.inputs, observe)
    return gaps


def compare_own(
    programs: TappedPrograms, launched: ModeOutputs, precision: Precision
) -> dict[str, tuple[Gap, PrecisionError]]:
    """Returns how far each operator is from eager on the values that the program itself had.

    And how far its precision explains.
    """
    selected = {tap.tapped_node.name: tap for group in programs.tapped.values() for tap in group}
    starts = {name: taps.find_sum_start(programs.traced, tap) for name, tap in selected.items()}
    ends = {start.end.name: start for start in starts.values() if start is not None}
    scheme = precision.quantization
    is_dynamic = scheme is not None and scheme.activations == "dynamic"
    powers: dict[str, float] = {}
    gaps = {}

    def observe(name: str, value: torch.Tensor) -> torch.Tensor:
        if name in ends and precision.name == "fp16":
            powers[name] = ends[name].power_between(value)
        if name not in launched.values:
            return value
        tap, start, actual = selected[name], starts[name], launched.values[name]()
        size = operators.element_count(tap.tapped_node)
        if is_dynamic and tap.summed > 1:
            explained = explain_dynamic_product(size)
        else:
            between = 0.0 if start is None else powers.get(start.end.name, 0.0)
            power = float(value.double().square().mean()) if between else 1.0
            growth = between / power if power else 1.0
            explained = explain_error(
                precision.name, tap.summed, size, steps=tap.steps, growth=growth
            )
        gaps[name] = _gap_between(actual, value), explained
        return actual.to(value.dtype).reshape(value.shape)

    _walk(programs.traced, programs.inputs, observe)
    return gaps


def _compare_float32(
    request: GapRequest, method: str, selected: Sequence[Tap], launched: Mapping[str, ModeOutputs]
) -> dict[str, dict[str, Gap]]:
    """Returns by mode how far each operator is from the model in float32, where that has it.

    It has it under the same name, as the same operator of the same shape: a quantised graph may
    have lost some, such as batch norms.
    """
    precision = request.export.parsed_precision()
    dtype = getattr(torch, precision.float_dtype)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        options = request.export.options
        methods = model_loading.load_methods(
            request.export.model, options.weights, options.example_inputs
        )
    wide = in_float32(methods[method], dtype)
    traced = lowering.trace(method, wide)
    graph_nodes = {(node.name, node.target) for node in traced.graph.nodes}
    tap_names = {
        tap.node.name: tap.tapped_node.name
        for tap in selected
        if (tap.node.name, tap.node.target) in graph_nodes
    }
    gaps: dict[str, dict[str, Gap]] = {}

    def observe(name: str, value: torch.Tensor) -> torch.Tensor:
        for mode, outputs in launched.items() if name in tap_names else ():
            actual = outputs.values[tap_names[name]]()
            if actual.shape == value.shape:
                gaps.setdefault(mode, {})[name] = _gap_between(actual, value)
        return value

    _walk(traced, tensors.flatten((wide.inputs, dict(wide.kwarg_inputs))), observe)
    return gaps


def _check_taps(launched: ModeOutputs) -> Gap:
    """Compares the outputs of the tapped program with those of the one without taps."""
    pairs = zip(launched.tapped_outputs, launched.outputs, strict=True)
    gaps = [_gap_between(tapped(), untapped()) for tapped, untapped in pairs]
    return max(gaps, key=lambda gap: gap.relative)


Observer = Callable[[str, torch.Tensor], torch.Tensor]
"""Gets a node's name and its value in eager, and returns the value that its readers get."""


class _GraphWalk(torch.fx.Interpreter):
    """Keeps no value longer than its last reader needs it."""

    def __init__(self, module: torch.fx.GraphModule, observe: Observer) -> None:
        super().__init__(module)
        self._observe = observe

    def run_node(self, n: torch.fx.Node) -> Any:  # noqa: ANN401 - a node's value
        """Computes a node and shows it."""
        value = super().run_node(n)
        is_seen = n.op == "call_function" and isinstance(value, torch.Tensor)
        return self._observe(n.name, value) if is_seen else value


def _walk(program: torch.export.ExportedProgram, inputs: Sequence[Any], observe: Observer) -> None:
    """Runs `program` on flat inputs; buffers that it changes are as before afterwards."""
    module = program.module(check_guards=False)
    with unchanged_buffers(module), HalfPrecisionMode():  # type: ignore[no-untyped-call]
        _GraphWalk(module, observe).run(*inputs, enable_io_processing=False)


def _gap_between(value: torch.Tensor, reference: torch.Tensor) -> Gap:
    """Compares two tensors of one shape."""
    return measure_gap(_array(value), _array(reference))


def _array(value: torch.Tensor) -> Any:  # noqa: ANN401 - NumPy's
    # NumPy has no bfloat16.
    widened = value.float() if value.dtype == torch.bfloat16 else value
    return widened.detach().contiguous().numpy()
