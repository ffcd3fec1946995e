"""The way down from a module to an ExecuTorch program."""

from __future__ import annotations

import contextlib
import io
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from etprof.backends.registry import BY_NAME
from etprof.base.errors import EtprofError, ExportError, first_line
from etprof.export import operators, tensors, upstream
from etprof.export.changes import half_constants, half_sums
from etprof.export.changes.embeddings import fuse_look_ups
from etprof.export.changes.failed_lowering import REWRITE, FailedLoweringError, blame
from etprof.export.changes.rewriting import count_lowered, find_missed
from etprof.export.changes.scopes import find_deciding
from etprof.export.changes.shared_kernels import separate_kernels
from etprof.export.changes.volumes import flatten_volumes
from etprof.export.request import BLOCK_MULTIPLE, parse_precision
from etprof.export.state import (
    STEPS,
    list_changes,
    take_state,
    touches_state,
    unchanged_buffers,
    vary_inputs,
)
from etprof.model_registry.eager_model import checked_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from etprof.backends.backend import Backend
    from etprof.export.changes.rewriting import Rewriting
    from etprof.export.changes.scopes import Scope
    from etprof.export.operators import LoweredMethod
    from etprof.export.request import ExportOptions, Precision, Quantization
    from etprof.model_registry.eager_model import ExportMethod, Inputs


_PACKAGE = str(Path(__file__).parents[1])

EXTERNAL_TAG = "weights"
"""What ExecuTorch calls the file of external constants before it gets its final name."""


def buffer_names(module: torch.nn.Module) -> list[str]:
    """Returns the names of the module's buffers."""
    return [name for name, _ in module.named_buffers()]


def cast_method(
    method: ExportMethod, dtype: torch.dtype, scopes: Sequence[Scope] = ()
) -> ExportMethod:
    """Casts the module, in place, and its inputs to `dtype` wherever they are floating-point.

    A module that one of `scopes` covers computes in that precision, between two casts.
    """
    module = method.module.eval().requires_grad_(requires_grad=False)
    borders = list(_find_borders(module, dtype, scopes))
    states = [dict(layer.state_dict()) for layer, _, _ in borders]
    module = module.to(dtype)
    for (layer, inside, outside), state in zip(borders, states, strict=True):
        _cast_layer(layer, state, inside, outside)
    return type(method)(
        module=module,
        inputs=tensors.cast_floating(method.inputs, dtype),
        kwarg_inputs=tensors.cast_floating(dict(method.kwarg_inputs), dtype),
        dynamic_shapes=method.dynamic_shapes,
        calibration=tensors.cast_floating(list(method.calibration), dtype),
    )


def _find_borders(
    module: nn.Module, dtype: torch.dtype, scopes: Sequence[Scope]
) -> Iterator[tuple[nn.Module, torch.dtype, torch.dtype]]:
    """Yields the modules that compute in another type than what they are in, and both types."""
    types = {"": dtype}
    for path, submodule in module.named_modules():
        scope = find_deciding(scopes, path)
        inside = getattr(torch, parse_precision(scope.precision).float_dtype) if scope else dtype
        outside = types[path.rpartition(".")[0]] if path else dtype
        types[path] = inside
        if inside != outside:
            yield submodule, inside, outside


def _cast_layer(
    layer: nn.Module, state: dict[str, Any], inside: torch.dtype, outside: torch.dtype
) -> None:
    """Gives a layer its own weights back as `inside`, and casts what goes in and what comes out."""
    layer.to(inside).load_state_dict(state)

    def enter(_: nn.Module, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - any inputs
        return tensors.cast_floating((args, kwargs), inside)

    def leave(_: nn.Module, args: Any, output: Any) -> Any:  # noqa: ANN401 - any outputs
        del args
        return tensors.cast_floating(output, outside)

    layer.register_forward_pre_hook(enter, with_kwargs=True)
    layer.register_forward_hook(leave)


def output_dtypes(program: torch.export.ExportedProgram) -> list[torch.dtype | None]:
    """Returns the element type of each output of a traced method; None for what is no tensor."""
    output = program.graph.output_node()
    values = [
        node.meta.get("val") if isinstance(node, torch.fx.Node) else None for node in output.args[0]
    ]
    user = set(program.graph_signature.user_outputs)
    names = [getattr(node, "name", node) for node in output.args[0]]
    return [
        value.dtype if isinstance(value, torch.Tensor) else None
        for name, value in zip(names, values, strict=True)
        if name in user
    ]


def trace(
    name: str, method: ExportMethod, *, external_constants: bool = False
) -> torch.export.ExportedProgram:
    """Traces one method with torch.export; raises ExportError with its reason.

    Transposed weights and buffers are stored in order first, in place.
    With `external_constants` every weight, also a delegate's, is marked to leave the program.
    """
    tensors.store_in_order(method.module)
    program = _trace(name, method, method.module)
    if external_constants:
        module = program.module()
        upstream.delegate_external_constants_pass_unlifted(
            module=module, gen_tag_fn=lambda _: EXTERNAL_TAG
        )
        program = _trace(name, method, module)
    return program


def _trace(
    name: str, method: ExportMethod, module: torch.nn.Module
) -> torch.export.ExportedProgram:
    printed = io.StringIO()
    try:
        # When it fails, PyTorch prints the graph so far; the reason is in the exception.
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            upstream.lines_of_helpers(),
        ):
            program = torch.export.export(
                module,
                method.inputs,
                dict(method.kwarg_inputs),
                dynamic_shapes=method.dynamic_shapes,
                strict=False,
            )
    # torch.export fails with whatever the model's own code or any of its own passes raise.
    except Exception as error:
        msg = f"torch.export cannot trace method {name!r}: {first_line(error)}{blamed_line(error)}"
        is_data = "GuardOnDataDependentSymNode" in msg
        is_half = tensors.half_precision_of((method.inputs, [*module.parameters()])) is not None
        way_out = _NO_BRANCH if is_data else _IN_HALVES if is_half else REWRITE
        raise ExportError(f"{msg}; {way_out}") from error
    sys.stderr.write(printed.getvalue())
    return separate_kernels(flatten_volumes(program))


@dataclass(frozen=True)
class LoweredProgram:
    """Methods in the edge dialect with their delegates, and what is known about them."""

    edge: upstream.EdgeProgramManager
    methods: dict[str, LoweredMethod]
    widened: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many operators of each method compute in float32 instead of float16, by kind."""
    clamped: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many operators of each method write a constant that their type does not hold, by kind."""
    rewritten: Counter[str] = field(default_factory=Counter)
    """Operators that each rewrite of the lowering handed over otherwise."""
    failed: dict[str, str] = field(default_factory=dict)
    """Rewrites that nobody asked for and that fail on this model, and how."""
    graphs: dict[str, str] = field(default_factory=dict)
    """Each method's graph as text, with those inside its delegates; when it is asked for."""


def lower(
    programs: Mapping[str, torch.export.ExportedProgram],
    backend: str,
    options: ExportOptions,
    constants: Mapping[str, int] | None = None,
    outside: Collection[str] = (),
) -> LoweredProgram:
    """Lowers traced methods to the edge dialect and gives `backend` what it can take.

    Each of `constants` becomes a method without inputs that tells it. Traced operators that are
    called as one of `outside` stay out of delegates.
    """
    exporter = BY_NAME[backend].exporter()
    partitioners = exporter.make_partitioners(
        options.operators,
        options.config_precisions,
        per_operator=options.per_op_mode,
        rewrites=options.rewrites,
        outside=outside,
    )
    clamped = {name: half_constants.clamp(program) for name, program in programs.items()}
    with (
        exporter.collected_reasons() as reasons,
        exporter.rewritten_lowering(options.rewrites) as inside,
        upstream.without_waste(),
    ):
        edge = _lower(programs, partitioners, backend, constants or {})
    if options.embeddings is not None:
        for name in programs:
            edge._edge_programs[name] = fuse_look_ups(edge.exported_program(name))
    supported_targets = frozenset(
        name for partitioner in partitioners for name in partitioner.target_partitioner_configs
    )
    widened, causes, inserted = {}, dict(reasons), set[str]()
    for name in () if options.keep_fp16_sums else programs:
        widened[name], casts = half_sums.widen(edge.exported_program(name))
        causes |= casts
        inserted |= casts.keys()
    rules = operators.PartitionRules(causes, supported_targets)
    requested = [rewrite for rewrite in exporter.rewrites() if rewrite.name in options.rewrites]
    other_rewrites = [rewrite for rewrite in exporter.rewrites() if rewrite not in requested]
    missed = {
        name: replace(find_missed(program, other_rewrites), inserted=frozenset(inserted))
        for name, program in programs.items()
    }
    methods = {
        name: operators.list_operators(edge.exported_program(name).graph_module, rules, unused)
        for name, unused in missed.items()
    }
    graphs = _format_graphs(edge, programs) if options.graph else {}
    failed = {name: why for unused in missed.values() for name, why in unused.failed.items()}
    counts = count_lowered(requested, methods.values()) + Counter(inside)
    return LoweredProgram(edge, methods, widened, clamped, counts, failed, graphs)


def _format_graphs(edge: upstream.EdgeProgramManager, names: Iterable[str]) -> dict[str, str]:
    return {
        name: upstream.format_delegated_graph(edge.exported_program(name).graph_module)
        for name in names
    }


def _lower(
    programs: Mapping[str, torch.export.ExportedProgram],
    partitioners: list[Any],
    backend: str,
    constants: Mapping[str, int],
) -> upstream.EdgeProgramManager:
    try:
        return upstream.to_edge_transform_and_lower(
            dict(programs),
            partitioner=partitioners,
            constant_methods=dict(constants),
            compile_config=upstream.EdgeCompileConfig(_check_ir_validity=False),
            generate_etrecord=True,
        )
    # Passes and partitioners raise anything; all of it means that the model cannot be lowered.
    except Exception as error:
        raise FailedLoweringError(backend, error) from error


def find_shared_buffers(methods: Mapping[str, ExportMethod]) -> set[str]:
    """Returns the names of buffers that are one and the same tensor in several methods."""
    addresses: dict[str, list[int]] = {}
    for method in methods.values():
        for name, buffer in method.module.named_buffers():
            addresses.setdefault(name, []).append(buffer.data_ptr())
    return {n for n, pointers in addresses.items() if len(pointers) > 1 == len(set(pointers))}


def make_program(
    edge: upstream.EdgeProgramManager, options: ExportOptions, shared: Collection[str] = ()
) -> upstream.ExecutorchProgramManager:
    """Plans memory and serialises; raises ExportError when an operator has no kernel form.

    When the methods change buffers of `shared`, all find them in the same memory, provided the
    runtime's Module is told to share its arenas, as etprof-runner does to generate tokens.
    """
    buffers = sorted({name for method in edge.methods for name in _mutable_buffers(edge, method)})
    planner = getattr(upstream, options.memory_planning)
    config = upstream.ExecutorchBackendConfig(
        # Without it a buffer that the model changes, such as a cache, starts as whatever is there.
        passes=[upstream.InitializedMutableBufferPass(buffers)] if buffers else [],
        memory_planning_pass=upstream.MemoryPlanningPass(
            upstream.MemoryPlanningAlgorithmSuite([planner]),
            share_mutable_buffers=_changes_shared_state(edge, shared),
        ),
        external_constants=(lambda _: EXTERNAL_TAG) if options.external_constants else False,
    )
    try:
        return edge.to_executorch(config)
    # As above: any pass may fail in its own way.
    except Exception as error:
        msg = f"cannot make an ExecuTorch program: {blame(error)}"
        raise ExportError(f"{msg}; {REWRITE}") from error


def _mutable_buffers(edge: upstream.EdgeProgramManager, method: str) -> list[str]:
    """Returns the graph's names of the buffers that the method changes."""
    signature = edge.exported_program(method).graph_signature
    changed = carried_buffers(edge, method)
    return [name for name, buffer in signature.inputs_to_buffers.items() if buffer in changed]


def carried_buffers(edge: upstream.EdgeProgramManager, method: str) -> set[str]:
    """Returns the model's paths of the buffers that the method changes and keeps."""
    return set(edge.exported_program(method).graph_signature.buffers_to_mutate.values())


def _changes_shared_state(edge: upstream.EdgeProgramManager, shared: Collection[str]) -> bool:
    """Whether all buffers that several methods change are shared, and there are any.

    ExecuTorch shares by name alone, so two buffers that only have the same name forbid it.
    """
    changed = [name for method in edge.methods for name in carried_buffers(edge, method)]
    repeated = {name for name in changed if changed.count(name) > 1}
    return bool(repeated) and repeated <= set(shared)


_IN_HALVES = (
    "eager PyTorch runs it in float32: export it as fp32, or write that part for half precision; "
    "a tensor that forward makes needs the type of its inputs, as in torch.zeros(2, dtype=x.dtype)"
)
_NO_BRANCH = "a program cannot branch on values: use torch.where, or torch.cond for whole branches"


def blamed_line(error: BaseException) -> str:
    """Returns the innermost line of the model's code in a traceback, as ` (file:line: code)`."""
    frames = traceback.extract_tb(error.__traceback__)
    # Frames before etprof's are its caller's.
    last = max(
        (i for i, frame in enumerate(frames) if frame.filename.startswith(_PACKAGE)), default=-1
    )
    called = [
        frame
        for frame in frames[last + 1 :]
        if not upstream.PYTORCH_FILE.search(frame.filename) and not frame.filename.startswith("<")
    ]
    in_model = [frame for frame in called if "site-packages" not in frame.filename] or called
    return (
        f" ({in_model[-1].filename}:{in_model[-1].lineno}: {in_model[-1].line})" if in_model else ""
    )


@dataclass(frozen=True)
class QuantizationReport:
    """What quantisation did to one method."""

    calibration_samples: int
    quantized_operators: int
    """Operators of the traced graph, or linear layers, that now compute on integers."""
    float_layers: tuple[str, ...] = ()
    """Linear layers in floating point: it was asked for, or their rows do not divide into blocks."""


def quantize_method(  # noqa: PLR0913 - one by one as a recipe names them
    name: str,
    method: ExportMethod,
    precision: Precision,
    backend: Backend,
    rewriting: Rewriting,
    *,
    scopes: Sequence[Scope] = (),
) -> tuple[ExportMethod, QuantizationReport]:
    """Returns `method` with a quantised module; raises ExportError when nothing can be quantised.

    What one of `scopes` covers gets that one's precision.
    """
    names = dict.fromkeys((precision.name, *(scope.precision for scope in scopes)))
    schemes = {
        name: quantization for name in names if (quantization := parse_precision(name).quantization)
    }
    scheme = schemes[precision.name]

    def decide(path: str, operator: str) -> str:
        scope = find_deciding(scopes, path, operator)
        return precision.name if scope is None else scope.precision

    if scheme.method == "torchao":
        report = _quantize_linears(method.module, schemes, decide)
    else:
        is_dynamic = any(scheme.activations == "dynamic" for scheme in schemes.values())
        fixing = rewriting.of_quantization() if is_dynamic else []
        quantizer = _make_quantizer(schemes, backend, decide, [rewrite.name for rewrite in fixing])
        method, report = _quantize_graph(name, method, scheme, quantizer, rewriting)
        counts = {rewrite.name: rewrite.named(rewrite.count)(method.module) for rewrite in fixing}
        rewriting.operators += Counter(counts)
    if report.quantized_operators == 0:
        raise ExportError(
            f"method {name!r} has nothing that {_describe(scheme)} can quantise; export it as fp16"
        )
    return method, report


def check_quantized(name: str, program: torch.export.ExportedProgram) -> None:
    """Raises ExportError where no output depends on anything that was quantised."""
    used: set[torch.fx.Node] = {program.graph.output_node()}
    for node in reversed(program.graph.nodes):
        if node in used:
            used |= set(node.all_input_nodes)
    if not any(operators.is_quantize(node) for node in used):
        raise ExportError(
            f"method {name!r} uses no layer that was quantised: its outputs depend on none; export it "
            "as fp16"
        )


def _describe(scheme: Quantization) -> str:
    kind = "linear layers with rows of a multiple of 32" if scheme.method == "torchao" else "int8"
    return f"{scheme.weight_bits}-bit quantisation ({kind})"


def _make_quantizer(
    schemes: Mapping[str, Quantization],
    backend: Backend,
    decide: Callable[[str, str], str],
    rewrites: Collection[str],
) -> Any:  # noqa: ANN401 - torchao's
    """Returns the backend's quantizer for each precision, each for the operators that are its own.

    Those whose scales are computed get `rewrites`.
    """

    def choose(name: str) -> Callable[[torch.fx.Node], bool]:
        return lambda node: (
            not touches_state(node)
            and decide(operators.find_origin(node).module_path, operators.target_name(node)) == name
        )

    quantizers = [
        backend.exporter().make_quantizer(
            per_channel=scheme.weight_granularity == "per_channel",
            dynamic=scheme.activations == "dynamic",
            may_quantize=choose(name),
            rewrites=rewrites if scheme.activations == "dynamic" else (),
        )
        for name, scheme in schemes.items()
    ]
    return quantizers[0] if len(quantizers) == 1 else upstream.ComposableQuantizer(quantizers)


def _quantize_graph(
    name: str,
    method: ExportMethod,
    scheme: Quantization,
    quantizer: Any,  # noqa: ANN401 - torchao's
    rewriting: Rewriting,
) -> tuple[ExportMethod, QuantizationReport]:
    """Quantises the traced graph as the backend's quantizer annotates it (PT2E)."""
    samples = list(method.calibration) or [method.inputs]
    check_samples(name, method, samples)
    try:
        traced = rewriting.before_quantization(trace(name, method))
        return _convert_graph(traced.module(), method, quantizer, samples)
    except EtprofError:
        raise
    # The quantiser's passes raise anything for operators that they do not expect.
    except Exception as error:
        raise ExportError(
            f"method {name!r}: {_describe(scheme)} fails: {blame(error)}; "
            "export it as fp16, or as 8da4w"
        ) from error


def _convert_graph(
    graph: torch.nn.Module,
    method: ExportMethod,
    quantizer: Any,  # noqa: ANN401 - torchao's
    samples: Sequence[Inputs],
) -> tuple[ExportMethod, QuantizationReport]:
    names = buffer_names(graph)
    prepared = upstream.prepare_pt2e(graph, quantizer)
    with unchanged_buffers(prepared, names):
        before = take_state(prepared)
        for sample in samples:
            prepared(*sample, **method.kwarg_inputs)
        if not method.calibration and set(names) & set(list_changes(before, take_state(prepared))):
            # What it computes from a later state has a range of its own.
            for step in range(2, STEPS + 1):
                inputs, kwarg_inputs = vary_inputs(method, step)
                prepared(*inputs, **kwarg_inputs)
    # It computes what depends on constants alone, `counter.add_(1)` too: one inference too many.
    with unchanged_buffers(prepared, names):
        converted = upstream.convert_pt2e(prepared)
    report = QuantizationReport(len(samples), _count_quantized(converted))
    return replace(method, module=converted), report


def _count_quantized(graph: torch.fx.GraphModule) -> int:
    """Returns the number of operators with at least one input that was just dequantised."""
    return sum(
        any("dequantize" in str(source.target) for source in node.all_input_nodes)
        for node in graph.graph.nodes
        if node.op == "call_function" and "quantize" not in str(node.target)
    )


def _quantize_linears(
    module: nn.Module, schemes: Mapping[str, Quantization], decide: Callable[[str, str], str]
) -> QuantizationReport:
    """Gives each linear layer whose rows fit 4-bit weights and 8-bit dynamic activations, in place.

    Two methods may share a module; a layer that is quantised already is counted again.
    """
    linears = {
        name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)
    }
    quantized: set[str] = set()
    for precision, scheme in schemes.items():
        block = scheme.block_size or BLOCK_MULTIPLE
        fitting = {
            name
            for name, layer in linears.items()
            if layer.in_features % block == 0 and decide(name, "linear") == precision
        }
        quantized |= fitting
        done = {
            name for name in fitting if isinstance(linears[name].weight, upstream.TorchAOTensor)
        }
        size = scheme.block_size
        upstream.quantize_(
            module,
            upstream.Int8DynamicActivationIntxWeightConfig(
                weight_dtype=getattr(torch, f"int{scheme.weight_bits}"),
                weight_granularity=upstream.PerAxis(0) if size is None else upstream.PerGroup(size),
            ),
            filter_fn=lambda _, name, pending=fitting - done: name in pending,
        )
    return QuantizationReport(0, len(quantized), tuple(sorted(linears.keys() - quantized)))


def check_samples(name: str, method: ExportMethod, samples: Sequence[Inputs]) -> None:
    """Raises ExportError when a calibration sample does not look like the example inputs."""
    expected = [_describe_value(value) for value in tensors.flatten(method.inputs)]
    free_shapes = method.dynamic_shapes is not None
    for index, sample in enumerate(samples):
        checked_inputs(sample, f"calibration sample {index} of method {name!r}")
        actual = [_describe_value(value) for value in tensors.flatten(sample)]
        if len(actual) != len(expected):
            msg = f"calibration sample {index} of method {name!r} has {len(actual)} inputs, "
            raise ExportError(msg + f"the example has {len(expected)}")
        for position, (is_, should) in enumerate(zip(actual, expected, strict=True)):
            if is_ != should and not (free_shapes and is_[0] == should[0]):
                msg = f"calibration sample {index} of method {name!r}: input {position} is "
                raise ExportError(msg + f"{_text(is_)}, the example is {_text(should)}")


def _describe_value(value: Any) -> tuple[str, list[int] | None]:  # noqa: ANN401 - any input
    if isinstance(value, torch.Tensor):
        return tensors.dtype_name(value), list(value.shape)
    return type(value).__name__, None


def _text(description: tuple[str, list[int] | None]) -> str:
    return description[0] if description[1] is None else f"{description[0]}{description[1]}"
