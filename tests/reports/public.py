"""Models of further public reports, each of its own kind, with the number of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class PermutedConstant(nn.Module):
    """pytorch/executorch#14735: a constant whose memory is in another order than its axes."""

    def __init__(self) -> None:
        super().__init__()
        self.table: torch.Tensor
        self.register_buffer("table", torch.randn(6, 5, 4).permute(2, 0, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table


class PermutedTwice(nn.Module):
    """pytorch/executorch#19152: two readers of one permutation."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = x.permute(0, 2, 1)
        return turned.reshape(x.shape[0], -1), turned.sum(dim=1)


class OneChannel(nn.Module):
    """pytorch/executorch#19153: one channel, stored as NHWC, where both layouts are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(image)
        return result


class EmptyPad(nn.Module):
    """pytorch/executorch#17377: a padding of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(nn.functional.pad(x, (0, 8 - x.shape[1])))
        return result


class CircularVolume(nn.Module):
    """pytorch/executorch#11704: a volume padded with its own other end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 3, 3, padding=1, padding_mode="circular")

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(volume)
        return result


class CroppingPad(nn.Module):
    """pytorch/executorch#12456: a padding of which one side takes away."""

    def __init__(self, *, is_rewritten: bool = False) -> None:
        super().__init__()
        self.is_rewritten = is_rewritten

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_rewritten:
            return nn.functional.pad(x[:, 2:], (0, 0, 0, 2))
        return nn.functional.pad(x, (0, 0, -2, 2))


class CeilingPool(nn.Module):
    """pytorch/executorch#3567: a pooling that rounds its size up."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(image, 2, stride=2, ceil_mode=True)


class UnsavedCache(nn.Module):
    """pytorch/executorch#11542: a cache of ones that no checkpoint has."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: torch.Tensor
        self.register_buffer("cache", torch.ones(1, 4, 6), persistent=False)

    def forward(self, place: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        cache = self.cache.index_copy_(1, place, row)
        return cache + 0


class ShiftedCache(nn.Module):
    """pytorch/executorch#21979: a cache that a slice of a join is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.window: torch.Tensor
        self.register_buffer("window", torch.full((1, 8, 4), 0.5))
        self.conv = nn.Conv1d(8, 8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([self.window, x], dim=-1)
        self.window.copy_(joined[..., -4:])
        result: torch.Tensor = self.conv(joined)
        return result


class PaddedSame(nn.Module):
    """pytorch/executorch#20517: padding "same" of an even kernel, before a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, (32, 1), padding="same")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x.reshape(1, 1, 256, 1)))


INPUTS: dict[type[nn.Module], Callable[[], tuple[torch.Tensor, ...]]] = {
    PermutedConstant: lambda: (torch.randn(4, 6, 5),),
    PermutedTwice: lambda: (torch.randn(2, 3, 5),),
    OneChannel: lambda: (torch.randn(1, 1, 7, 5).to(memory_format=torch.channels_last),),
    EmptyPad: lambda: (torch.randn(2, 8),),
    CircularVolume: lambda: (torch.randn(1, 2, 6, 6, 6),),
    CroppingPad: lambda: (torch.randn(1, 5, 4),),
    CeilingPool: lambda: (torch.randn(1, 4, 9, 9),),
    UnsavedCache: lambda: (torch.tensor([2]), torch.randn(1, 1, 6)),
    ShiftedCache: lambda: (torch.randn(1, 8, 6),),
    PaddedSame: lambda: (torch.randn(1, 256),),
}
"""What each is called with."""
