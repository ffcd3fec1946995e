"""Random networks with settled batch norms, whose rounding in half precision grows with their depth."""

from __future__ import annotations

import torch
from torch import nn


class SettledNet(nn.Module):
    """Depthwise and pointwise convolutions with batch norms that have seen inputs like the example's."""

    def __init__(self, seed: int, blocks: int = 13, channels: int = 32) -> None:
        super().__init__()
        torch.manual_seed(seed)
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, 2, 1), nn.BatchNorm2d(channels)]
        for _ in range(blocks):
            layers += [
                nn.Conv2d(channels, channels, 3, 1, 1, groups=channels, bias=False),
                nn.BatchNorm2d(channels), nn.ReLU(),
                nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            ]  # fmt: skip
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, 10)
        with torch.no_grad():
            self.train()
            for _ in range(20):
                self(torch.randn(8, 3, 32, 32))
        self.eval()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(image).mean((2, 3)))
        return result
