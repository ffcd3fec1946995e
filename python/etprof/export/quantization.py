"""Turns the float module of a method into a quantised one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from etprof.base.errors import EtprofError, ExportError
from etprof.export import lowering, tensors, upstream
from etprof.export.eager_model import checked_inputs
from etprof.export.request import BLOCK_MULTIPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.backends.backend import Backend
    from etprof.export.eager_model import ExportMethod, Inputs
    from etprof.export.request import Quantization


@dataclass(frozen=True)
class QuantizationReport:
    """What quantisation did to one method."""

    calibration_samples: int
    quantized_operators: int
    """Operators of the traced graph, or linear layers, that now compute on integers."""
    float_layers: tuple[str, ...] = ()
    """Linear layers that stayed in floating point because their rows do not divide into blocks."""


def quantize_method(
    name: str, method: ExportMethod, scheme: Quantization, backend: Backend
) -> tuple[ExportMethod, QuantizationReport]:
    """Returns `method` with a quantised module; raises ExportError when nothing can be quantised."""
    if scheme.method == "torchao":
        report = _quantize_linears(method.module, scheme)
    else:
        method, report = _quantize_graph(name, method, scheme, backend)
    if report.quantized_operators == 0:
        msg = (
            f"method {name!r} has nothing that {_describe(scheme)} can quantise; export it as fp16"
        )
        raise ExportError(msg)
    return method, report


def _describe(scheme: Quantization) -> str:
    kind = "linear layers with rows of a multiple of 32" if scheme.method == "torchao" else "int8"
    return f"{scheme.weight_bits}-bit quantisation ({kind})"


def _quantize_graph(
    name: str, method: ExportMethod, scheme: Quantization, backend: Backend
) -> tuple[ExportMethod, QuantizationReport]:
    """Quantises the traced graph as the backend's quantizer annotates it (PT2E)."""
    samples = list(method.calibration) or [method.inputs]
    check_samples(name, method, samples)
    try:
        quantizer = backend.exporter().make_quantizer(
            per_channel=scheme.weight_granularity == "per_channel",
            dynamic=scheme.activations == "dynamic",
        )
        return _convert_graph(name, method, quantizer, samples)
    except EtprofError:
        raise
    # The quantiser's passes raise anything for operators that they do not expect.
    except Exception as error:
        msg = (
            f"method {name!r}: {_describe(scheme)} fails: {lowering.root_cause(error)}; "
            "export it as fp16, or as 8da4w"
        )
        raise ExportError(msg) from error


def _convert_graph(
    name: str,
    method: ExportMethod,
    quantizer: Any,  # noqa: ANN401 - torchao's
    samples: Sequence[Inputs],
) -> tuple[ExportMethod, QuantizationReport]:
    graph = lowering.trace(name, method).module()
    names = lowering.buffer_names(graph)
    prepared = upstream.prepare_pt2e(graph, quantizer)
    with torch.no_grad(), lowering.unchanged_buffers(prepared, names):
        for sample in samples:
            prepared(*sample, **method.kwarg_inputs)
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


def _quantize_linears(module: nn.Module, scheme: Quantization) -> QuantizationReport:
    """Gives each linear layer whose rows fit 4-bit weights and 8-bit dynamic activations, in place.

    Two methods may share a module; a layer that is quantised already is counted again.
    """
    block = scheme.block_size or BLOCK_MULTIPLE
    linears = {
        name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)
    }
    fitting = {name for name, layer in linears.items() if layer.in_features % block == 0}
    done = {name for name in fitting if isinstance(linears[name].weight, upstream.TorchAOTensor)}
    granularity = (
        upstream.PerAxis(0) if scheme.block_size is None else upstream.PerGroup(scheme.block_size)
    )
    upstream.quantize_(
        module,
        upstream.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=getattr(torch, f"int{scheme.weight_bits}"), weight_granularity=granularity
        ),
        filter_fn=lambda _, name: name in fitting - done,
    )
    return QuantizationReport(0, len(fitting), tuple(sorted(linears.keys() - fitting)))


def check_samples(name: str, method: ExportMethod, samples: Sequence[Inputs]) -> None:
    """Raises ExportError when a calibration sample does not look like the example inputs."""
    expected = [_describe_value(value) for value in tensors.flatten(method.inputs)]
    free_shapes = method.dynamic_shapes is not None
    for index, sample in enumerate(samples):
        checked_inputs(sample, f"calibration sample {index} of method {name!r}")
        found = [_describe_value(value) for value in tensors.flatten(sample)]
        if len(found) != len(expected):
            msg = f"calibration sample {index} of method {name!r} has {len(found)} inputs, "
            raise ExportError(msg + f"the example has {len(expected)}")
        for position, (is_, should) in enumerate(zip(found, expected, strict=True)):
            if is_ != should and not (free_shapes and is_[0] == should[0]):
                msg = f"calibration sample {index} of method {name!r}: input {position} is "
                raise ExportError(msg + f"{_text(is_)}, the example is {_text(should)}")


def _describe_value(value: Any) -> tuple[str, list[int] | None]:  # noqa: ANN401 - any input
    if isinstance(value, torch.Tensor):
        return tensors.dtype_name(value), list(value.shape)
    return type(value).__name__, None


def _text(description: tuple[str, list[int] | None]) -> str:
    return description[0] if description[1] is None else f"{description[0]}{description[1]}"
