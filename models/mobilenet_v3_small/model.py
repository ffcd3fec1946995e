"""MobileNetV3-Small after Howard et al., "Searching for MobileNetV3" (2019), table 2.

The names in the state dict are torchvision's, so its checkpoints load with `--weights`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from etprof.model_registry.eager_model import EagerModelBase

from ..batch_norms import settle_batch_norms
from ..images import make_image, make_images


@dataclass(frozen=True)
class _Block:
    """One row of table 2."""

    kernel: int
    expanded: int
    outputs: int
    has_squeeze: bool
    activation: type[nn.Module]
    stride: int


_RE, _HS = nn.ReLU, nn.Hardswish
_BLOCKS = (
    _Block(3, 16, 16, True, _RE, 2),
    _Block(3, 72, 24, False, _RE, 2),
    _Block(3, 88, 24, False, _RE, 1),
    _Block(5, 96, 40, True, _HS, 2),
    _Block(5, 240, 40, True, _HS, 1),
    _Block(5, 240, 40, True, _HS, 1),
    _Block(5, 120, 48, True, _HS, 1),
    _Block(5, 144, 48, True, _HS, 1),
    _Block(5, 288, 96, True, _HS, 2),
    _Block(5, 576, 96, True, _HS, 1),
    _Block(5, 576, 96, True, _HS, 1),
)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=0.001, momentum=0.01)


def _pointwise(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 1, bias=False), _norm(outputs)]


def _depthwise(channels: int, kernel: int, stride: int) -> list[nn.Module]:
    padding = kernel // 2
    conv = nn.Conv2d(channels, channels, kernel, stride, padding, groups=channels, bias=False)
    return [conv, _norm(channels)]


def _round_to_eight(channels: float) -> int:
    """Rounds to a multiple of eight, but never down by more than 10 %."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class SqueezeExcitation(nn.Module):
    """Scales each channel by a gate computed from the mean of all."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = _round_to_eight(channels / 4)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [N, C, H, W] to the same shape."""
        gate = self.activation(self.fc1(self.avgpool(x)))
        scaled: torch.Tensor = x * self.scale_activation(self.fc2(gate))
        return scaled


class InvertedResidual(nn.Module):
    """Expands, filters depthwise, gates, and projects back linearly."""

    def __init__(self, inputs: int, block: _Block) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        hidden, activation = block.expanded, block.activation
        if hidden != inputs:
            layers.append(nn.Sequential(*_pointwise(inputs, hidden), activation()))
        depthwise = _depthwise(hidden, block.kernel, block.stride)
        layers.append(nn.Sequential(*depthwise, activation()))
        if block.has_squeeze:
            layers.append(SqueezeExcitation(hidden))
        layers.append(nn.Sequential(*_pointwise(hidden, block.outputs)))
        self.block = nn.Sequential(*layers)
        self.is_residual = block.stride == 1 and inputs == block.outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        y: torch.Tensor = self.block(x)
        return x + y if self.is_residual else y


class MobileNetV3Small(nn.Module):
    """Width 1.0: 2,542,856 parameters."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        channels = 16
        stem = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        layers: list[nn.Module] = [nn.Sequential(stem, _norm(channels), nn.Hardswish())]
        for block in _BLOCKS:
            layers.append(InvertedResidual(channels, block))
            channels = block.outputs
        layers.append(nn.Sequential(*_pointwise(channels, 576), nn.Hardswish()))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Maps images of [N, 3, H, W] to scores of [N, classes]."""
        features = self.avgpool(self.features(image)).flatten(1)
        scores: torch.Tensor = self.classifier(features)
        return scores


class MobileNetV3SmallModel(EagerModelBase):
    """Classifies one image of 224x224."""

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        return settle_batch_norms(MobileNetV3Small(), make_images(224, 2))

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns one normalised image."""
        return (make_image(224),)

    def get_calibration_data(self) -> list[tuple[torch.Tensor]]:
        """Returns eight images."""
        return make_images(224, 8)
