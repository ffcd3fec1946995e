"""Models of further public reports: layouts in memory, attention, and operators with few kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

NHWC = torch.channels_last


class WholeMaximum(nn.Module):
    """pytorch/executorch#3516: the largest of all values, which is a scalar."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.max(x)


class PooledNhwc(nn.Module):
    """pytorch/executorch#19139: a mean over an image's axes that comes in NHWC through a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(5, 11, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.conv(image)).mean(dim=(2, 3))


class MeanNhwc(nn.Module):
    """pytorch/executorch#16507: a mean of NHWC alone, whose result has fewer axes."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.mean(dim=(2, 3)) * 2.0


class NhwcParameter(nn.Module):
    """pytorch/executorch#16464: a parameter in NHWC, read by an operator outside the delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.randn(1, 4, 3, 5).to(memory_format=NHWC))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.remainder(image + self.offset, 2.0)


class LinearNhwc(nn.Module):
    """pytorch/executorch#11086: a linear layer on an image in NHWC, which makes it contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(image)
        return result


class NhwcDepthwise(nn.Module):
    """pytorch/executorch#22520: depthwise weights in NHWC, whose axis of one fits two orders."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 6, 1)
        self.to(memory_format=NHWC)  # type: ignore[call-overload]

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.point(torch.relu(self.depth(image)))
        return result


class LoneBatchNorm(nn.Module):
    """pytorch/executorch#1340: a batch norm with no convolution before it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.norm.running_mean = torch.tensor([0.5, -1.0, 2.0, 0.1])
        self.norm.running_var = torch.tensor([0.3, 2.0, 1.0, 4.0])
        self.conv = nn.Conv2d(4, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(torch.tanh(self.norm(image)))
        return result


class AtrousPyramid(nn.Module):
    """pytorch/executorch#12134: dilated convolutions beside a pooled image that grows again."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(6, 4, 3, padding=rate, dilation=rate) for rate in (1, 2, 3)
        )
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1), nn.ReLU())
        self.head = nn.Conv2d(16, 5, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        size = image.shape[-2:]
        pooled = nn.functional.interpolate(
            self.pooled(image), size=size, mode="bilinear", align_corners=False
        )
        result: torch.Tensor = self.head(
            torch.cat([*(torch.relu(branch(image)) for branch in self.branches), pooled], dim=1)
        )
        return result


class ImageNorm(nn.Module):
    """Tencent/ncnn#4734: norms over rows and channels behind a convolution longer than high."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, (5, 9), padding=(2, 4))
        self.norm = nn.LayerNorm([10, 14])

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(nn.functional.gelu(self.norm(self.conv(sound))), 2)


class WindowedAttention(nn.Module):
    """roboflow/rf-detr#1233: attention within windows of an image, of values as real images have."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.output = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        windows = image.reshape(1, 2, 4, 2, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(4, 16, 16)
        query, key, value = (
            part.reshape(4, 16, 2, 8).transpose(1, 2) for part in self.inputs(windows).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        rows = self.output(mixed.transpose(1, 2).reshape(4, 16, 16))
        result: torch.Tensor = rows.reshape(1, 2, 2, 4, 4, 16).permute(0, 1, 3, 2, 4, 5)
        return result.reshape(1, 8, 8, 16)


class RelativeAttention(nn.Module):
    """pytorch/executorch#16712: scores of relative places, shifted by a padding and a reshape."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)
        self.places = nn.Parameter(torch.randn(11, 16))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        query = self.query(frames)
        content = query @ self.key(frames).transpose(1, 2)
        shifted = nn.functional.pad(query @ self.places.t(), (1, 0)).reshape(1, 12, 6)
        relative = shifted[:, 1:].reshape(1, 6, 11)[:, :, :6]
        return torch.softmax((content + relative) / 4, dim=-1) @ frames


class Bucketed(nn.Module):
    """pytorch/executorch#20270: places among boundaries, for which there is no portable kernel."""

    def __init__(self, *, is_rewritten: bool = False) -> None:
        super().__init__()
        self.is_rewritten = is_rewritten
        self.bounds: torch.Tensor
        self.register_buffer("bounds", torch.linspace(-1, 1, 5))
        self.table = nn.Embedding(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_rewritten:
            places = (x.unsqueeze(-1) > self.bounds).sum(dim=-1)
        else:
            places = torch.bucketize(x, self.bounds)
        result: torch.Tensor = self.table(places)
        return result


class GridSampled(nn.Module):
    """pytorch/executorch#13509: samples of an image along a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return nn.functional.grid_sample(self.conv(image), grid, align_corners=True)


class SqueezeExcite(nn.Module):
    """pytorch/executorch#9749: channels that are scaled by what a pooled image says of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = nn.functional.silu(self.conv(image))
        scale = nn.functional.silu(self.squeeze(features.mean((2, 3), keepdim=True)))
        result: torch.Tensor = features * torch.sigmoid(self.excite(scale))
        return result


class SameOutputs(nn.Module):
    """pytorch/executorch#1132: outputs that are one value under several names, and the input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = self.layer(x)
        return rows, rows.detach(), torch.relu(rows).view(-1)


class RowsOfProducts(nn.Module):
    """microsoft/onnxruntime#31153: a product whose rows become an axis of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16) / 16)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return (rows @ self.weight).reshape(-1, 10, 16) + 1.0


class CausalAttention(nn.Module):
    """pytorch/executorch#1577: PyTorch's own causal attention, with its special kernel for CPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(16, 48)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inputs(tokens).reshape(1, 7, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def _image(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(memory_format=NHWC)


INPUTS: dict[type[nn.Module], Callable[[], tuple[torch.Tensor, ...]]] = {
    WholeMaximum: lambda: (torch.randn(3, 2),),
    PooledNhwc: lambda: (_image(2, 5, 13, 7),),
    MeanNhwc: lambda: (_image(2, 5, 4, 6),),
    NhwcParameter: lambda: (_image(1, 4, 3, 5),),
    LinearNhwc: lambda: (_image(1, 2, 3, 10),),
    NhwcDepthwise: lambda: (_image(1, 8, 9, 9),),
    LoneBatchNorm: lambda: (torch.randn(1, 4, 7, 7),),
    AtrousPyramid: lambda: (torch.randn(1, 6, 12, 12),),
    ImageNorm: lambda: (torch.randn(1, 1, 10, 14),),
    WindowedAttention: lambda: (5 * torch.rand(1, 8, 8, 16) - 2,),
    RelativeAttention: lambda: (torch.randn(1, 6, 16),),
    Bucketed: lambda: (torch.randn(2, 6),),
    GridSampled: lambda: (torch.randn(1, 3, 8, 8), torch.rand(1, 5, 5, 2) * 2 - 1),
    SqueezeExcite: lambda: (torch.randn(1, 3, 16, 16),),
    SameOutputs: lambda: (torch.randn(3, 6),),
    RowsOfProducts: lambda: (torch.randn(10, 16),),
    CausalAttention: lambda: (torch.randn(1, 7, 16),),
}
"""What each is called with."""
