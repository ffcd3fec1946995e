"""Rewrites of quantised weights into the forms that XNNPACK has SME2 microkernels for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etprof.backends.rewrite import GraphRewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

_FOUR_BITS, _EIGHT_BITS, _SYMMETRIC_EIGHT_BITS = (-8, 7), (-128, 127), (-127, 127)
"""Least and largest integers."""


class ChannelWeights(GraphRewrite):
    """4-bit weights with one scale a row, as the delegate's kernels of SME2 take them."""

    name = "channel_weights"
    gives_sme2_weights = True
    precedes_quantization = False
    changes = (
        "weights in blocks as long as a row become weights with a scale a channel, and their "
        "inputs are quantised a token at a time by ExecuTorch's own operators"
    )
    legal = "the same integers and scales"
    rests_on = (
        "XNNPACK is given torchao's blocks as QB4W, for which it has no SME2 microkernel, and "
        "dequantize_per_channel as QC4W, for which it has"
    )

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the step of quantisation in ExecuTorch's own operators."""
        return {
            "torchao.dequantize_affine.default": cls._dequantize,
            "torchao.quantize_affine.default": cls._quantize,
            "torchao.choose_qparams_affine.default": cls._choose,
        }

    @staticmethod
    def _are_rows(value: Tensor, block: Sequence[int]) -> bool:
        return list(block) == [1] * (value.dim() - 1) + [value.shape[-1]]

    @classmethod
    def _dequantize(  # noqa: PLR0913, PLR0917 - torchao's
        cls,
        value: Tensor,
        block_size: Sequence[int],
        scale: Tensor,
        zero_point: Tensor | None,
        input_dtype: Any,  # noqa: ANN401
        quant_min: int | None = None,
        quant_max: int | None = None,
        output_dtype: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        import torch

        if not cls._are_rows(value, block_size) or zero_point is None:
            return NotImplemented
        operators, dtype = torch.ops.quantized_decomposed, output_dtype or torch.float32
        if (quant_min, quant_max) == _FOUR_BITS and value.dim() == 2:
            scales, zeros = scale.reshape(scale.numel()), zero_point.reshape(scale.numel())
            return operators.dequantize_per_channel.default(
                value, scales, zeros, 0, *_FOUR_BITS, input_dtype, out_dtype=dtype
            )
        if (quant_min, quant_max) != _EIGHT_BITS:
            return NotImplemented
        return operators.dequantize_per_token.default(
            value, scale, zero_point, *_EIGHT_BITS, input_dtype, dtype
        )

    @classmethod
    def _quantize(  # noqa: PLR0913, PLR0917 - torchao's
        cls,
        value: Tensor,
        block_size: Sequence[int],
        scale: Tensor,
        zero_point: Tensor | None,
        output_dtype: Any,  # noqa: ANN401
        quant_min: int | None = None,
        quant_max: int | None = None,
    ) -> Any:  # noqa: ANN401
        import torch

        if not cls._are_rows(value, block_size) or (quant_min, quant_max) != _EIGHT_BITS:
            return NotImplemented
        return torch.ops.quantized_decomposed.quantize_per_token.default(
            value, scale, zero_point, *_EIGHT_BITS, output_dtype
        )

    @classmethod
    def _choose(  # noqa: PLR0913, PLR0917 - torchao's
        cls,
        value: Tensor,
        mapping_type: str,
        block_size: Sequence[int],
        target_dtype: Any,  # noqa: ANN401
        quant_min: int | None = None,
        quant_max: int | None = None,
        *_: object,
    ) -> Any:  # noqa: ANN401
        import torch

        is_plain = mapping_type == "ASYMMETRIC" and (quant_min, quant_max) == _EIGHT_BITS
        if not is_plain or not cls._are_rows(value, block_size):
            return NotImplemented
        operators = torch.ops.quantized_decomposed
        return operators.choose_qparams_per_token_asymmetric.default(value, target_dtype)


class ChannelScales(GraphRewrite):
    """8-bit weights of products with one scale a channel, as the kernels of SME2 take them."""

    name = "channel_scales"
    gives_sme2_weights = True
    precedes_quantization = False
    changes = (
        "8-bit weights of linear layers and 1x1 convolutions with one scale for all get that scale "
        "for each channel"
    )
    legal = "the same integers and scales"
    rests_on = (
        "XNNPACK packs operands for its 8-bit SME2 kernels where weights have a scale a channel "
        "(QC8W); it makes those itself for convolutions that are no matrix products"
    )

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the same with scales in a row; activations and larger kernels are left alone."""
        return {"quantized_decomposed.dequantize_per_tensor.default": cls._dequantize}

    @staticmethod
    def _dequantize(  # noqa: PLR0913, PLR0917 - ExecuTorch's
        value: Tensor,
        scale: float,
        zero_point: int,
        quant_min: int,
        quant_max: int,
        dtype: Any,  # noqa: ANN401
        *,
        out_dtype: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        import torch

        is_matrix = value.dim() == 2 or (value.dim() == 4 and value.shape[2:] == (1, 1))
        # Only weights have as many integers below zero as above it.
        if not is_matrix or zero_point or (quant_min, quant_max) != _SYMMETRIC_EIGHT_BITS:
            return NotImplemented
        channels, aten = value.shape[0], torch.ops.aten
        scales = aten.full.default([channels], scale, dtype=torch.float32)
        zeros = aten.full.default([channels], 0, dtype=torch.int64)
        return torch.ops.quantized_decomposed.dequantize_per_channel.default(
            value, scales, zeros, 0, quant_min, quant_max, dtype, out_dtype=out_dtype
        )
