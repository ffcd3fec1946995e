"""Example images: normalised like those of ImageNet, with the structure that real ones have."""

from __future__ import annotations

import torch
from torch.nn.functional import interpolate


def make_image(size: int) -> torch.Tensor:
    """Returns an image of [1, 3, size, size]: smooth areas, edges and some noise, unit variance.

    White noise would not do: pooling and ReLU see other statistics in it than in photographs.
    """
    coarse = interpolate(torch.randn(1, 3, 8, 8), size=(size, size), mode="bilinear")
    edges = (interpolate(torch.randn(1, 3, 16, 16), size=(size, size)) > 1).float()
    image = coarse + edges + 0.1 * torch.randn(1, 3, size, size)
    return (image - image.mean()) / image.std()


def make_images(size: int, count: int) -> list[tuple[torch.Tensor]]:
    """Returns `count` images as calibration data."""
    return [(make_image(size),) for _ in range(count)]
