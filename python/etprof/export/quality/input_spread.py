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
from etprof.export.state import run_eager, run_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.export.request import ExportedFiles, ExportRequest
    from etprof.model_registry.eager_model import ExportMethod

INPUTS: Final = 10
"""Of a network with spelled-out norms the ratios of two programs differed by 0.06 dB over 100 inputs,
with a standard deviation of 2.43: of ten, the mean is known to 1.7 dB."""
_LEAST_VALUES: Final = 3
"""Different ones in an input that may be in another order; fewer are a mask or a flag."""


def ratios_over_inputs(
    request: ExportRequest, files: Sequence[ExportedFiles], count: int = INPUTS
) -> list[list[float]] | None:
    """Returns how near programs of one model are to eager float32, on the same inputs.

    The first inputs are the example's, the others have its values in another order.

    Args:
        request: What the model is, its inputs and its precision.
        files: The programs, each by its files.
        count: Inputs.

    Returns:
        For each program, for each input on which all programs differ from eager: the least
        signal-to-noise ratio of all outputs of all methods, in dB. None of a model with state, or
        whose inputs have no other order.

    Raises:
        ExportError: The model's code fails, or the runtime refuses a program.
    """
    precision = request.parsed_precision()
    dtype = getattr(torch, precision.float_dtype)
    options = request.options
    with upstream.quiet_upstream(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        methods = model_loading.load_methods(request.model, options.weights, options.example_inputs)
        tables = [
            _ratios_of(name, _reorder(in_float32(method, dtype), count), files, request)
            for name, method in methods.items()
        ]
    if any(table is None for table in tables):
        return None
    # By program and input, the worst method's.
    worst = [
        [min(cell) for cell in zip(*rows, strict=True)]
        for rows in zip(*filter(None, tables), strict=True)
    ]
    are_finite = [all(map(_is_finite, column)) for column in zip(*worst, strict=True)]
    return [[ratio for ratio, keep in zip(row, are_finite, strict=True) if keep] for row in worst]


def _is_finite(ratio_db: float) -> bool:
    return abs(ratio_db) != float("inf")


def _reorder(method: ExportMethod, count: int) -> list[ExportMethod]:
    """Returns the method with its own inputs, and with their values in other orders.

    Where they have no other order, itself alone.
    """
    leaves, structure = pytree.tree_flatten((method.inputs, dict(method.kwarg_inputs)))
    if not any(map(_has_order, leaves)):
        return [method]
    generator = torch.Generator().manual_seed(SEED)
    methods = [method]
    for _ in range(count - 1):
        shuffled = [_shuffle(leaf, generator) if _has_order(leaf) else leaf for leaf in leaves]
        inputs, keywords = pytree.tree_unflatten(shuffled, structure)
        methods.append(replace(method, inputs=inputs, kwarg_inputs=keywords, calibration=()))
    return methods


def _has_order(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and torch.unique(leaf).numel() >= _LEAST_VALUES


def _shuffle(leaf: Any, generator: torch.Generator) -> torch.Tensor:  # noqa: ANN401 - a tensor
    order = torch.randperm(leaf.numel(), generator=generator)
    return torch.empty_like(leaf).copy_(leaf.flatten()[order].view(leaf.shape))


def _ratios_of(
    name: str,
    methods: Sequence[ExportMethod],
    files: Sequence[ExportedFiles],
    request: ExportRequest,
) -> list[list[float]] | None:
    """Returns the ratios of each program's method, input by input; infinite where nothing differs."""
    if len(methods) < 2:
        return None
    dtype = getattr(torch, request.parsed_precision().float_dtype)
    try:
        if run_steps(methods[0]).changed:
            return None
        references = [run_eager(method) for method in methods]
    # The model's own code refuses values in another order.
    except Exception as error:
        msg = f"the eager model fails on its values in another order: {first_line(error)}"
        raise ExportError(msg) from error
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
    """Returns the least signal-to-noise ratio of the outputs that have one, in dB."""
    references = [value for value in expected if value is not None]
    if len(outputs) != len(references):
        raise ExportError(
            f"the program gives {len(outputs)} outputs, the eager model {len(references)}"
        )
    ratios = [
        compare_output(index, output, reference).snr_db
        for index, (output, reference) in enumerate(zip(outputs, references, strict=True))
    ]
    return min((ratio for ratio in ratios if ratio is not None), default=float("inf"))
