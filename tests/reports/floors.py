"""Random networks with settled batch norms: rounding in half precision grows in them until little is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
_WIDEST = 256
_SETTLING = 40
"""Batches that the norms see: after five, half precision still has 68 dB, and after these 36."""


class SettledNet(nn.Module):
    """Depthwise and pointwise convolutions, as the first MobileNet has them."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        channels = 16
        layers = [*_block(nn.Conv2d(3, channels, 3, 2, 1, bias=False))]
        for index, stride in enumerate(_STRIDES):
            is_wider = stride == 2 or index == 0
            wide = min(_WIDEST, channels * 2) if is_wider else channels
            depthwise = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
            layers += [*_block(depthwise), *_block(nn.Conv2d(channels, wide, 1, bias=False))]
            channels = wide
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, 100)
        self.train()
        with torch.no_grad():
            for _ in range(_SETTLING):
                self(torch.randn(2, 3, 64, 64))
        self.eval()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(image).mean((2, 3)))
        return result


def _block(conv: nn.Conv2d) -> tuple[nn.Module, ...]:
    return conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU()


INPUTS: dict[type[nn.Module], Callable[[], tuple[torch.Tensor, ...]]] = {
    SettledNet: lambda: (torch.randn(1, 3, 64, 64),),
}
"""What each is called with."""
