"""Models of further public reports: single operators, kernels that are missing, forms of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class ScaledAdd(nn.Module):
    """pytorch/executorch#11683: a sum whose second term has a factor."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.add(x, y, alpha=10)


class ScaledDifference(nn.Module):
    """pytorch/executorch#11684: a difference whose second term has a factor."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sub(x, y, alpha=10)


class IntegerRelu(nn.Module):
    """pytorch/executorch#10961: a ReLU of whole numbers of 8 bits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class PackedBits(nn.Module):
    """pytorch/executorch#15673: weights of 4 bits, two in a byte, which a shift takes apart."""

    def __init__(self) -> None:
        super().__init__()
        self.packed: torch.Tensor
        self.register_buffer("packed", torch.randint(0, 256, (8, 4), dtype=torch.int32))

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return x + (torch.bitwise_right_shift(self.packed, shift) & 15)


class SmoothResize(nn.Module):
    """pytorch/executorch#7031: an image made smaller with anti-aliasing."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(image, size=(5, 5), mode="bilinear", antialias=True)


class SlopedRelu(nn.Module):
    """pytorch/executorch#17559: a PReLU, whose weights XNNPACK does not pack."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.PReLU(8)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.relu(self.conv(image))
        return result


class TurnedBetween(nn.Module):
    """pytorch/executorch#19836: a transpose between two layers, quantised with them."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels = nn.Linear(6, 6), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = self.channels(x).transpose(1, 2) * 3.0
        result: torch.Tensor = self.tokens(turned)
        return result


class Spectrum(nn.Module):
    """pytorch/executorch#21950: the power of a spectrum, for which there is no kernel."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        power: torch.Tensor = torch.fft.rfft(frames).abs().pow(2.0)
        return power


class BestThree(nn.Module):
    """pytorch/executorch#8700: the largest three, which need memory while they are sought."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(16, 64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.topk(self.scores(x), 3)
        return values, indices


class Scattered(nn.Module):
    """pytorch/executorch#4742: rows that are written to places which the input names."""

    def __init__(self, *, has_type: bool = False) -> None:
        super().__init__()
        self.has_type = has_type

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        empty = torch.zeros(2, 12, dtype=x.dtype) if self.has_type else torch.zeros(2, 12)
        return empty.scatter(1, places, x)


class NormedWeight(nn.Module):
    """pytorch/executorch#3946: a convolution with weight norm, which computes its weights."""

    def __init__(self) -> None:
        super().__init__()
        conv = nn.Conv1d(4, 6, 3, padding=1)
        self.conv = nn.utils.parametrizations.weight_norm(conv)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(x)
        return result


class ProductOfInputs(nn.Module):
    """pytorch/executorch#8138: a product of two inputs, which the quantiser leaves in float32."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, y)


class PlainAverage(nn.Module):
    """pytorch/executorch#21862: an average of a pool with PyTorch's default arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(self.conv(image), 2)


class CountedAverage(nn.Module):
    """microsoft/onnxruntime#29629: an average that counts its padding and rounds its size up."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(image, 3, stride=2, padding=1, ceil_mode=True)


class Exponential(nn.Module):
    """pytorch/executorch#12120: exp, of which half precision has few digits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)


class Upsampled(nn.Module):
    """pytorch/executorch#7640: a transposed convolution after another, quantised."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.up(torch.relu(self.down(image)))
        return result


class SkippedUpsampling(nn.Module):
    """qubvel-org/segmentation_models.pytorch#1256: a decoder that joins what it enlarged and skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.last = nn.Conv2d(24, 2, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skipped = torch.relu(self.first(image))
        small = torch.relu(self.second(nn.functional.max_pool2d(skipped, 2)))
        enlarged = nn.functional.interpolate(small, scale_factor=2.0, mode="nearest")
        result: torch.Tensor = self.last(torch.cat([enlarged, skipped], dim=1))
        return result


class NamedOutputs(nn.Module):
    """pytorch/executorch#17482: a depth model that gives its outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.mask = nn.Conv2d(3, 1, 3, padding=1), nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"pred_depth": torch.relu(self.depth(image)), "mask": self.mask(image)}


class StackedLstm(nn.Module):
    """pytorch/executorch#5338: an LSTM, whose weights serve each of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 12, num_layers=2, batch_first=True), nn.Linear(12, 3)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.lstm(frames)[0][:, -1])
        return result


class SplitHeads(nn.Module):
    """pytorch/executorch#16432: attention of a language model written as products of its heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.out = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, 4, 8).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        weights = torch.softmax(query @ key.transpose(-1, -2) / 8**0.5, dim=-1)
        result: torch.Tensor = self.out((weights @ value).transpose(1, 2).reshape(x.shape))
        return result


INPUTS: dict[type[nn.Module], Callable[[], tuple[torch.Tensor, ...]]] = {
    ScaledAdd: lambda: (torch.randn(10), torch.randn(10)),
    ScaledDifference: lambda: (torch.randn(10), torch.randn(10)),
    IntegerRelu: lambda: (torch.tensor([-128, -127, -10, 5, 127], dtype=torch.int8),),
    PackedBits: lambda: (torch.randn(8, 4), torch.full((8, 4), 4, dtype=torch.int32)),
    SmoothResize: lambda: (torch.randn(1, 3, 12, 12),),
    SlopedRelu: lambda: (torch.randn(1, 3, 8, 8),),
    TurnedBetween: lambda: (torch.randn(2, 6, 8),),
    Spectrum: lambda: (torch.randn(4, 32),),
    BestThree: lambda: (torch.randn(2, 16),),
    Scattered: lambda: (torch.randn(2, 3), torch.tensor([[0, 5, 11], [2, 3, 4]])),
    NormedWeight: lambda: (torch.randn(1, 4, 10),),
    ProductOfInputs: lambda: (torch.randn(2, 5, 8), torch.randn(2, 8, 6)),
    PlainAverage: lambda: (torch.randn(1, 3, 10, 10),),
    CountedAverage: lambda: (torch.randn(1, 4, 8, 8),),
    Exponential: lambda: (torch.randn(4, 64),),
    Upsampled: lambda: (torch.randn(1, 3, 16, 16),),
    SkippedUpsampling: lambda: (torch.randn(1, 3, 16, 16),),
    NamedOutputs: lambda: (torch.randn(1, 3, 8, 8),),
    StackedLstm: lambda: (torch.randn(1, 5, 8),),
    SplitHeads: lambda: (torch.randn(1, 7, 32),),
}
"""What each is called with."""
