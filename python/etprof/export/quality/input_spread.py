"""How near a program is to eager on several inputs: which of two is nearer, one input does not say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _pytree as pytree

from etprof.base.errors import ExportError, first_line
from etprof.export import model_loading, tensors, upstream
from etprof.export.quality.reference import in_float32
from etprof.export.runtime_check import compare_output, execute_steps
from etprof.export.session import SEED
from etprof.export.state import run_eager, run_steps, samples_of_example_shapes
from etprof.run.accuracy import NO_LIKENESS_DB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.export.request import ExportedFiles, ExportRequest
    from etprof.model_registry.eager_model import ExportMethod
    from etprof.statistics.likeness import Parity

INPUTS: Final = 10
"""Of a network with spelled-out norms the ratios of two programs differed by 0.06 dB over 100 inputs,
with a standard deviation of 2.43; ten are a second where an inference takes a tenth of one."""
_JITTER: Final = 0.1
"""Of each value, one standard deviation: another rounding everywhere, and a like input all the same."""
_LEAST_VALUES: Final = 3
"""Different ones in an input that may be varied; fewer are a mask or a flag."""
_EXACT_DB: Final = 200.0
"""What stands for an output without any error; float32 reaches 150."""


def ratios_over_inputs(
    request: ExportRequest, files: Sequence[ExportedFiles], count: int = INPUTS
) -> list[list[float]] | None:
    """Returns how near programs of one model are to eager float32, on the same inputs.

    The first inputs are the example's. Others are its calibration samples, then the example with noise
    on its floating-point values, or with its whole numbers in another order where it has no others.

    Args:
        request: What the model is, its inputs and its precision.
        files: The programs, each by its files.
        count: Inputs.

    Returns:
        For each program, for each input: the least signal-to-noise ratio of all outputs of all
        methods, in dB, from -3000 (no likeness, or values that are not finite on one side) to 200 (no
        error). None of a model with state, or whose inputs cannot be varied.

    Raises:
        EtprofError: The model's code fails on an input, or the runtime on a program.
    """
    dtype = getattr(torch, request.parsed_precision().float_dtype)
    options = request.options
    with upstream.quiet_upstream(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        methods = model_loading.load_methods(request.model, options.weights, options.example_inputs)
        varied = {name: _vary(in_float32(method, dtype), count) for name, method in methods.items()}
        if any(len(inputs) < count or _has_state(inputs[0]) for inputs in varied.values()):
            return None
        tables = [_ratios_of(name, inputs, files, request) for name, inputs in varied.items()]
    # By program and input, the worst method's.
    return [[min(cell) for cell in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]


def _has_state(method: ExportMethod) -> bool:
    """Whether outputs depend on the calls before."""
    try:
        return bool(run_steps(method).changed)
    # The model's own code.
    except Exception as error:
        raise ExportError(f"the eager model fails on its inputs: {first_line(error)}") from error


def _vary(method: ExportMethod, count: int) -> list[ExportMethod]:
    """Returns the method with its own inputs first; itself alone where they cannot be varied."""
    example = (method.inputs, dict(method.kwarg_inputs))
    leaves, structure = pytree.tree_flatten(example)
    methods = [method] + [
        replace(method, inputs=sample, calibration=())
        for sample in samples_of_example_shapes(method)
    ]
    can_vary = [_can_vary(leaf) for leaf in leaves]
    has_floats = any(
        leaf.is_floating_point() for leaf, can in zip(leaves, can_vary, strict=True) if can
    )
    if not any(can_vary):
        return methods[:count]
    generator = torch.Generator().manual_seed(SEED)
    while len(methods) < count:
        values = [
            _vary_leaf(leaf, generator) if can and leaf.is_floating_point() == has_floats else leaf
            for leaf, can in zip(leaves, can_vary, strict=True)
        ]
        inputs, keywords = pytree.tree_unflatten(values, structure)
        methods.append(replace(method, inputs=inputs, kwarg_inputs=keywords, calibration=()))
    return methods[:count]


def _can_vary(leaf: object) -> bool:
    is_plain = (
        isinstance(leaf, torch.Tensor)
        and leaf.layout == torch.strided
        and not (leaf.is_quantized or leaf.is_complex())
    )
    return is_plain and torch.unique(leaf).numel() >= _LEAST_VALUES


def _vary_leaf(leaf: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns values with noise, within what they were between, or whole numbers in another order."""
    if leaf.is_floating_point():
        noise = torch.randn(leaf.shape, generator=generator).to(leaf.dtype)
        values = (leaf * (1 + _JITTER * noise)).clamp(leaf.min(), leaf.max())
    else:
        values = leaf.flatten()[torch.randperm(leaf.numel(), generator=generator)].view(leaf.shape)
    return torch.empty_like(leaf).copy_(values)


def _ratios_of(
    name: str,
    methods: Sequence[ExportMethod],
    files: Sequence[ExportedFiles],
    request: ExportRequest,
) -> list[list[float]]:
    """Returns the ratios of each program's method, input by input."""
    dtype = getattr(torch, request.parsed_precision().float_dtype)
    try:
        references = [run_eager(method) for method in methods]
    # The model's own code refuses other values.
    except Exception as error:
        raise ExportError(f"the eager model fails on like inputs: {first_line(error)}") from error
    flat = [_program_inputs(method, dtype, request) for method in methods]
    return [
        [
            _worst_ratio(outputs, expected)
            for outputs, expected in zip(
                execute_steps(
                    program.pte,
                    program.external_data if program.external_data.exists() else None,
                    name,
                    flat,
                ),
                references,
                strict=True,
            )
        ]
        for program in files
    ]


def _program_inputs(method: ExportMethod, dtype: torch.dtype, request: ExportRequest) -> list[Any]:
    """Returns a method's inputs flat, in the element types and the memory order of the program's."""
    inputs, keywords = tensors.cast_floating((method.inputs, dict(method.kwarg_inputs)), dtype)
    stored = replace(method, inputs=inputs, kwarg_inputs=keywords)
    if request.options.channels_last:
        stored = tensors.with_channels_last(stored)
    return tensors.flatten((stored.inputs, dict(stored.kwarg_inputs)))


def _worst_ratio(outputs: Sequence[torch.Tensor], expected: Sequence[Any]) -> float:
    """Returns the least signal-to-noise ratio of the outputs that are scored, in dB."""
    references = [value for value in expected if value is not None]
    if len(outputs) != len(references):
        counts = f"{len(outputs)} outputs, the eager model {len(references)}"
        raise ExportError(f"the program gives {counts}")
    parities = [
        compare_output(index, output, reference)
        for index, (output, reference) in enumerate(zip(outputs, references, strict=True))
    ]
    return min(
        (_bounded_ratio(parity) for parity in parities if parity.degenerate is None),
        default=_EXACT_DB,
    )


def _bounded_ratio(parity: Parity) -> float:
    if parity.nonfinite_differences:
        return NO_LIKENESS_DB
    ratio_db = _EXACT_DB if parity.snr_db is None else parity.snr_db
    return min(max(ratio_db, NO_LIKENESS_DB), _EXACT_DB)
