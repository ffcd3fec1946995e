"""MobileNetV2 after Sandler et al., "Inverted Residuals and Linear Bottlenecks" (2018), table 2.

The names in the state dict are torchvision's, so its checkpoints load with `--weights`.
"""

from __future__ import annotations

import torch
from torch import nn

from etprof.model_registry.eager_model import EagerModelBase

from ..batch_norms import settle_batch_norms
from ..images import make_image, make_images

# Expansion, output channels, repetitions, stride of the first one: table 2 of the paper.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class ConvNormAct(nn.Sequential):
    """A convolution without bias, a batch norm and a ReLU6."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1
    ):
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU6(inplace=True),
        )


class InvertedResidual(nn.Module):
    """Expands with a pointwise convolution, filters depthwise, and projects back linearly."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [ConvNormAct(inputs, hidden, kernel=1)] if expansion > 1 else []
        self.conv = nn.Sequential(
            *expand,
            ConvNormAct(hidden, hidden, stride=stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        y: torch.Tensor = self.conv(x)
        return x + y if self.is_residual else y


class MobileNetV2(nn.Module):
    """Width 1.0: 3,504,872 parameters."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [ConvNormAct(3, 32, stride=2)]
        channels = 32
        for expansion, outputs, repetitions, first_stride in _STAGES:
            for index in range(repetitions):
                stride = first_stride if index == 0 else 1
                layers.append(InvertedResidual(channels, outputs, stride, expansion))
                channels = outputs
        layers.append(ConvNormAct(channels, 1280, kernel=1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Maps images of [N, 3, H, W] to scores of [N, classes]."""
        features = self.features(image).mean((2, 3))
        scores: torch.Tensor = self.classifier(features)
        return scores


class MobileNetV2Model(EagerModelBase):
    """Classifies one image of 224x224."""

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        return settle_batch_norms(MobileNetV2(), make_images(224, 2))

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns one normalised image."""
        return (make_image(224),)

    def get_calibration_data(self) -> list[tuple[torch.Tensor]]:
        """Returns eight images."""
        return make_images(224, 8)
