"""Models with operators that ExecuTorch or XNNPACK refuses, or computes otherwise, when it takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class ScaledSum(nn.Module):
    """A product and a sum whose factors are not 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 6))
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, rows, self.weight, beta=0.25, alpha=3.0)


class ScaledBatches(nn.Module):
    """The same over batches."""

    def forward(self, sums: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(sums, left, right, beta=2.0, alpha=0.5)


class Windows(nn.Module):
    """A linear layer over windows of windows: more axes than XNNPACK's six."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        windows = image.reshape(1, 2, 2, 2, 2, 2, 8)
        result: torch.Tensor = self.project(windows).sum(dim=(2, 4))
        return result


class ConvolvedWindows(nn.Module):
    """The same behind a convolution, which is quantised all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.windows = nn.Conv2d(3, 8, 3, padding=1), Windows()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.conv(image)).reshape(1, 2, 2, 2, 2, 2, 8)
        result: torch.Tensor = self.windows(features)
        return result


class PaddedShuffle(nn.Module):
    """Padding behind a pixel shuffle, between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 16, 3, padding=1)
        self.narrow = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        image = self.narrow(nn.functional.pixel_shuffle(self.wide(image), 2))
        result: torch.Tensor = nn.functional.pad(image, (2, 2, 2, 2))[:, :, ::2]
        return result


class Volumes(nn.Module):
    """Three-dimensional convolutions, grouped, strided and dilated."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(2, 6, 3, padding=1), nn.ReLU(),
            nn.Conv3d(6, 6, (3, 2, 2), stride=(1, 2, 2), groups=3, dilation=(2, 1, 1)), nn.ReLU(),
            nn.Conv3d(6, 4, 1),
        )  # fmt: skip

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(volume)
        return result


class GrowingVolumes(nn.Module):
    """A transposed one, as decoders of scans have."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Conv3d(2, 8, 3, padding=1)
        self.grow = nn.ConvTranspose3d(8, 3, 3, stride=2, padding=1, output_padding=1)

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.grow(torch.relu(self.narrow(volume)))
        return result


INPUTS: dict[type[nn.Module], Callable[[], tuple[torch.Tensor, ...]]] = {
    ScaledSum: lambda: (torch.randn(5, 12),),
    ScaledBatches: lambda: (torch.randn(2, 4, 5), torch.randn(2, 4, 6), torch.randn(2, 6, 5)),
    Windows: lambda: (torch.randn(1, 16, 16),),
    ConvolvedWindows: lambda: (torch.randn(1, 3, 4, 8),),
    PaddedShuffle: lambda: (torch.randn(1, 3, 12, 12),),
    Volumes: lambda: (torch.randn(1, 2, 6, 10, 10),),
    GrowingVolumes: lambda: (torch.randn(1, 2, 4, 6, 6),),
}
"""What each is called with."""
