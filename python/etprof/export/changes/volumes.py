"""Three-dimensional convolutions as sums of two-dimensional ones, for ExecuTorch 1.5.1 has no kernel of them.

A kernel of depth n is n kernels of images, each over the slices of the volume that it meets.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from etprof.export import upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

_ATEN = torch.ops.aten


def flatten_volumes(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns the program with its convolutions over volumes as sums; the same one without any."""
    table = {
        _ATEN.conv3d.default: _sum_slices,
        _ATEN.conv_transpose3d.input: _spread_slices,
    }
    if not any(node.target in table for node in program.graph.nodes):
        return program
    # Folded, for a delegate takes weights that are constants, not slices of some.
    folded: torch.export.ExportedProgram = upstream.constant_prop_pass(
        program.run_decompositions(table)
    )
    return folded


def _sum_slices(  # noqa: PLR0913, PLR0917 - as ATen has them
    volume: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    dilation: Sequence[int] = (1, 1, 1),
    groups: int = 1,
) -> torch.Tensor:
    """Computes aten.conv3d of shape [batch, channels, depth, height, width]."""
    strides, paddings, dilations = (_three(sizes) for sizes in (stride, padding, dilation))
    padded = _pad_depth(volume, paddings[0], paddings[0])
    slices = padded.shape[2] - dilations[0] * (weight.shape[2] - 1)
    planes = [
        padded[:, :, index * dilations[0] : index * dilations[0] + slices : strides[0]]
        for index in range(weight.shape[2])
    ]
    depth = planes[0].shape[2]
    parts = [
        functional.conv2d(
            _as_images(plane),
            weight[:, :, index],
            bias if index == 0 else None,
            strides[1:],
            paddings[1:],
            dilations[1:],
            groups,
        )
        for index, plane in enumerate(planes)
    ]
    return _as_volume(functools.reduce(operator.add, parts), depth)


def _spread_slices(  # noqa: PLR0913, PLR0917 - as ATen has them
    volume: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    output_padding: Sequence[int] = (0, 0, 0),
    groups: int = 1,
    dilation: Sequence[int] = (1, 1, 1),
) -> torch.Tensor:
    """Computes aten.conv_transpose3d: each slice gives one for every plane of the kernel."""
    strides, paddings, dilations = (_three(sizes) for sizes in (stride, padding, dilation))
    extra, depth = _three(output_padding), volume.shape[2]
    spread = (depth - 1) * strides[0] + 1
    reach = dilations[0] * (weight.shape[2] - 1)
    images, parts = _as_images(volume), []
    for index in range(weight.shape[2]):
        part = _as_volume(
            functional.conv_transpose2d(
                images, weight[:, :, index], None,
                strides[1:], paddings[1:], extra[1:], groups, dilations[1:],
            ),
            depth,
        )  # fmt: skip
        if strides[0] > 1:
            gaps = part.new_zeros([*part.shape[:3], strides[0] - 1, *part.shape[3:]])
            rows = torch.cat([part.unsqueeze(3), gaps], 3).flatten(2, 3)
            part = rows[:, :, :spread]
        before = index * dilations[0]
        parts.append(_pad_depth(part, before, reach - before + extra[0]))
    whole = functools.reduce(operator.add, parts)
    result = whole[:, :, paddings[0] : whole.shape[2] - paddings[0]]
    return result if bias is None else result + bias.reshape(1, -1, 1, 1, 1)


def _three(sizes: Any) -> list[int]:  # noqa: ANN401 - a number, or one or three of them
    listed = [sizes] if isinstance(sizes, int) else list(sizes)
    return listed * 3 if len(listed) == 1 else listed


def _pad_depth(volume: torch.Tensor, before: int, after: int) -> torch.Tensor:
    if before == after == 0:
        return volume
    return functional.pad(volume, (0, 0, 0, 0, before, after))


def _as_images(volume: torch.Tensor) -> torch.Tensor:
    """From [batch, channels, depth, …] to [batch · depth, channels, …]."""
    return volume.transpose(1, 2).flatten(0, 1)


def _as_volume(images: torch.Tensor, depth: int) -> torch.Tensor:
    return images.reshape(-1, depth, *images.shape[1:]).transpose(1, 2)
