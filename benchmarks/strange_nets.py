"""Small networks with one fault each, as somebody wrote them who had not read the rules of the findings.

What they are for is what faulty_nets.py says; `part` has the faulty line. The faults are of kinds that
people make on the way to ExecuTorch: each is in an ordinary network, with settled batch norms.
"""

# mypy: ignore-errors
# It stays as it was written: a profiler meets code without annotations.
from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from faulty_nets import FaultyNet
from torch import Tensor, nn
from torch.nn import functional

IMAGE: Final = ("1x3x128x128",)


@torch.no_grad()
def settle(model: nn.Module, seed: int) -> None:
    """Draws weights and statistics under which a signal lives through the depth of a network."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
        if isinstance(module, nn.BatchNorm2d):
            count = module.num_features
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.copy_(0.2 * torch.randn(count, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(count, generator=generator))
            module.weight.copy_(0.5 + torch.rand(count, generator=generator))
            module.bias.copy_(0.2 * torch.randn(count, generator=generator))


class ConvBNReLU(nn.Sequential):
    def __init__(self, cin: int, cout: int, k: int = 3, stride: int = 1, groups: int = 1) -> None:
        super().__init__(
            nn.Conv2d(cin, cout, k, stride, k // 2, groups=groups, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
        )


class FeedForward(nn.Sequential):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))


def split_heads(x: Tensor, heads: int) -> Tensor:
    b, t, d = x.shape
    return x.view(b, t, heads, d // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class DarkConv(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x))
        return torch.where(y > 0, y, 0.1 * y)  # fault


class DarkNet(FaultyNet):
    """A leaky ReLU is written with a comparison and `where`."""

    inputs = IMAGE
    named = "where"
    part = DarkConv

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            DarkConv(3, 24, 2),
            DarkConv(24, 32),
            DarkConv(32, 64, 2),
            DarkConv(64, 64),
            DarkConv(64, 128, 2),
        )
        self.fc = nn.Linear(128, 100)
        settle(self, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x).mean((2, 3)))


class UpBlock(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.interpolate(x, scale_factor=2.0, mode="nearest")  # fault
        return functional.relu(self.bn(self.conv(x)))


class MattingNet(FaultyNet):
    """A decoder repeats pixels before each convolution."""

    inputs = IMAGE
    rewrites = ("plain_views",)
    part = UpBlock

    def __init__(self) -> None:
        super().__init__()
        self.e1 = ConvBNReLU(3, 24, 3, 2)
        self.e2 = ConvBNReLU(24, 48, 3, 2)
        self.e3 = nn.Sequential(ConvBNReLU(48, 96, 3, 2), ConvBNReLU(96, 96))
        self.u2 = UpBlock(96, 48)
        self.u1 = UpBlock(48, 24)
        self.out = nn.Conv2d(24, 1, 3, 1, 1)
        settle(self, 2)

    def forward(self, x: Tensor) -> Tensor:
        s1 = self.e1(x)
        s2 = self.e2(s1)
        y = self.u2(self.e3(s2)) + s2
        y = self.u1(y) + s1
        return torch.sigmoid(self.out(y))


class StdConv2d(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) * torch.rsqrt(
            w.var((1, 2, 3), keepdim=True) + 1e-5
        )
        return functional.conv2d(x, 0.05 * w, self.bias, self.stride, self.padding)  # fault


class BiTSmall(FaultyNet):
    """Weights are standardised in every inference."""

    inputs = IMAGE
    causes = ("F5", "F3b", "F3")
    rewrites = ("folded_constants",)
    part = StdConv2d

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            ConvBNReLU(3, 32, 3, 2), ConvBNReLU(32, 64, 3, 2), ConvBNReLU(64, 64)
        )
        self.down = ConvBNReLU(64, 64, 3, 2)
        self.conv1 = StdConv2d(64, 64, 3, 1, 1)
        self.conv2 = StdConv2d(64, 64, 3, 1, 1)
        self.tail = ConvBNReLU(64, 128, 3, 2)
        self.fc = nn.Linear(128, 50)
        settle(self, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(self.stem(x))
        x = functional.relu(x + self.conv2(functional.relu(self.conv1(x))))
        return self.fc(self.tail(x).mean((2, 3)))


class CalibratedDepth(FaultyNet):
    """Buffers that came from NumPy are float64, and so is what they are added to."""

    inputs = IMAGE
    causes = ()

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(4)
        self.stem = ConvBNReLU(3, 32, 3, 2)
        self.register_buffer("center", torch.from_numpy(rng.normal(0.3, 0.1, (1, 32, 1, 1))))
        self.register_buffer("gain", torch.from_numpy(rng.uniform(0.5, 2.0, (1, 32, 1, 1))))
        self.body = nn.Sequential(ConvBNReLU(32, 48, 3, 2), ConvBNReLU(48, 64), ConvBNReLU(64, 64))
        self.head = nn.Conv2d(64, 1, 1)
        settle(self, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = ((x - self.center) * self.gain).float()  # fault
        return self.head(self.body(x))


class FrameTagger(FaultyNet):
    """A loop applies the same layers to one frame after the other."""

    inputs = ("1x48x256",)
    causes = ("F5", "F12", "F2")
    rewrites = ("plain_views",)

    def __init__(self) -> None:
        super().__init__()
        self.frame_mlp = nn.Sequential(
            nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 192), nn.ReLU()
        )
        self.tconv1 = nn.Conv1d(192, 192, 3, padding=1)
        self.tconv2 = nn.Conv1d(192, 192, 3, padding=1)
        self.head = nn.Linear(192, 64)
        settle(self, 5)

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.stack([self.frame_mlp(x[:, t]) for t in range(x.shape[1])], dim=1)  # fault
        y = frames.transpose(1, 2)
        y = functional.relu(self.tconv1(y))
        y = functional.relu(self.tconv2(y))
        return self.head(y.mean(2))


class PaddedAttention(nn.Module):
    def __init__(self, dim: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, 3 * dim)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        h = self.norm1(x)
        q, k, v = (split_heads(f(h), self.heads) for f in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
        scores = scores.masked_fill(valid[:, None, None, :] == 0, float("-inf"))  # fault
        x = x + self.o(merge_heads(torch.matmul(scores.softmax(-1), v)))
        return x + self.ffn(self.norm2(x))


class SentenceEncoder(FaultyNet):
    """A boolean mask fills the scores."""

    inputs = ("1x128x128", "1x128")
    named = "masked_fill"
    part = PaddedAttention

    def __init__(self) -> None:
        super().__init__()
        self.block1, self.block2 = PaddedAttention(), PaddedAttention()
        self.head = nn.Linear(128, 128)
        settle(self, 6)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        x = self.block2(self.block1(x, valid), valid)
        return self.head(x[:, 0])


class SpaceToDepthConv(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4 * cin, cout, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x: Tensor) -> Tensor:
        offsets = ((0, 0), (1, 0), (0, 1), (1, 1))
        x = torch.cat([x[..., i::2, j::2] for i, j in offsets], dim=1)  # fault
        return functional.relu(self.bn(self.conv(x)))


class SPDBackbone(FaultyNet):
    """Four slices with steps make channels of pixels."""

    inputs = IMAGE
    rewrites = ("plain_steps",)
    part = SpaceToDepthConv

    def __init__(self) -> None:
        super().__init__()
        self.d1, self.c1 = SpaceToDepthConv(3, 24), ConvBNReLU(24, 24)
        self.d2, self.c2 = SpaceToDepthConv(24, 48), ConvBNReLU(48, 48)
        self.d3, self.c3 = SpaceToDepthConv(48, 64), ConvBNReLU(64, 64)
        self.pred = nn.Conv2d(64, 30, 1)
        settle(self, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.c1(self.d1(x))
        x = self.c2(self.d2(x))
        return self.pred(self.c3(self.d3(x)))


class NextBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dw = nn.Conv2d(dim, dim, 5, 1, 2, groups=dim, bias=False)
        self.bn = nn.BatchNorm2d(dim)
        self.pw1 = nn.Linear(dim, 2 * dim)
        self.pw2 = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.dw(x)).permute(0, 2, 3, 1)  # fault
        y = self.pw2(functional.relu(self.pw1(y)))
        return x + y.permute(0, 3, 1, 2)


class NextDenoiser(FaultyNet):
    """Linear layers between transposes of the whole image."""

    inputs = IMAGE
    causes = ("F2", "F2b", "F2c", "F2d")
    named = "transpose"
    part = NextBlock

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBNReLU(3, 32, 3, 2)
        self.blocks = nn.Sequential(NextBlock(32), NextBlock(32), NextBlock(32))
        self.out = nn.Conv2d(32, 3, 3, 1, 1)
        settle(self, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(self.stem(x)))


class EfficientAttention(nn.Module):
    def __init__(self, dim: int = 128) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.query, self.key, self.value, self.proj = (nn.Linear(dim, dim) for _ in range(4))
        self.ffn = FeedForward(dim, 2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q = self.query(h).softmax(dim=-1)
        k = self.key(h).softmax(dim=1)  # fault
        context = torch.matmul(k.transpose(1, 2), self.value(h))
        x = x + self.proj(torch.matmul(q, context))
        return x + self.ffn(x)


class EfficientEncoder(FaultyNet):
    """A softmax over another than the last dimension."""

    inputs = ("1x128x128",)
    named = "softmax"
    part = EfficientAttention

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(EfficientAttention(), EfficientAttention())
        self.head = nn.Linear(128, 64)
        settle(self, 9)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


class Blur(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        tap = torch.tensor([1.0, 2.0, 1.0]) / 4
        kernel = torch.zeros(channels, channels, 3, 3)
        for c in range(channels):
            kernel[c, c] = torch.outer(tap, tap)
        self.register_buffer("kernel", kernel)

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.kernel, stride=2, padding=1)  # fault


class AntiAliasedNet(FaultyNet):
    """A blur of each channel is a dense convolution of zeros."""

    inputs = IMAGE
    causes = ("F3",)
    named = "zero"
    part = Blur

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            ConvBNReLU(3, 32, 3, 2),
            ConvBNReLU(32, 64),
            Blur(64),
            ConvBNReLU(64, 96, 1),
            Blur(96),
            ConvBNReLU(96, 128),
        )
        self.fc = nn.Linear(128, 100)
        settle(self, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.net(x).mean((2, 3)))


class CausalBlock(nn.Module):
    def __init__(self, dim: int = 128, heads: int = 4, length: int = 64) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, 4 * dim)
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        att = torch.matmul(q, k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1])) + self.mask
        x = x + self.o(merge_heads(torch.matmul(att.softmax(-1), v)))
        return x + self.ffn(self.norm2(x))


class NextWord(FaultyNet):
    """A head computes all positions, and one is returned."""

    inputs = ("int64:1x64",)
    causes = ("F24", "F5")
    named = "row"

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4096, 128)
        self.pos = nn.Parameter(0.02 * torch.randn(1, 64, 128))
        self.block1, self.block2 = CausalBlock(), CausalBlock()
        self.norm = nn.LayerNorm(128)
        self.vocab = nn.Linear(128, 4096, bias=False)
        settle(self, 11)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.block2(self.block1(self.embed(ids) + self.pos))
        logits = self.vocab(self.norm(x))  # fault
        return logits[:, -1]


class FaceNet(FaultyNet):
    """Two heads run the same trunk."""

    inputs = IMAGE
    causes = ("F24",)
    rewrites = ("shared_results",)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(ConvBNReLU(3, 24, 3, 2), ConvBNReLU(24, 48, 3, 2))
        self.trunk = nn.Sequential(ConvBNReLU(48, 64), ConvBNReLU(64, 96, 3, 2), ConvBNReLU(96, 96))
        self.id_head = nn.Linear(96, 128)
        self.box_head = nn.Conv2d(96, 5, 1)
        settle(self, 12)

    def embed(self, feat):
        return self.id_head(self.trunk(feat).mean((2, 3)))

    def locate(self, feat):
        return self.box_head(self.trunk(feat))  # fault

    def forward(self, x: Tensor) -> Tensor:
        feat = self.stem(x)
        return self.embed(feat), self.locate(feat)


class PoseNet(FaultyNet):
    """Seventeen convolutions of one channel each."""

    inputs = IMAGE
    causes = ("F3",)
    named = "convolution"

    def __init__(self, keypoints: int = 17) -> None:
        super().__init__()
        self.body = nn.Sequential(
            ConvBNReLU(3, 32, 3, 2), ConvBNReLU(32, 64, 3, 2), ConvBNReLU(64, 64)
        )
        self.heads = nn.ModuleList(nn.Conv2d(64, 1, 3, 1, 1) for _ in range(keypoints))
        settle(self, 13)

    def forward(self, x: Tensor) -> Tensor:
        feat = self.body(x)
        heat = torch.cat([head(feat) for head in self.heads], dim=1)  # fault
        return torch.sigmoid(heat)


class PrunedConv(nn.Module):
    def __init__(self, cin: int, cout: int, kept: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.register_buffer("keep", torch.randperm(cout)[:kept].sort().values)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn(self.conv(x)))
        return y[:, self.keep]  # fault


class PrunedNet(FaultyNet):
    """Channels are dropped by their numbers in every inference."""

    inputs = IMAGE
    named = "index"
    part = PrunedConv

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            PrunedConv(3, 32, 24, 2),
            ConvBNReLU(24, 48),
            PrunedConv(48, 64, 48, 2),
            ConvBNReLU(48, 96, 3, 2),
        )
        self.fc = nn.Linear(96, 100)
        settle(self, 14)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x).mean((2, 3)))


class RelativeAttention(nn.Module):
    def __init__(
        self, dim: int = 128, heads: int = 4, buckets: int = 32, max_distance: int = 128
    ) -> None:
        super().__init__()
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.table = nn.Embedding(buckets, heads)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def relative_bucket(self, rel):
        half = self.buckets // 2
        exact = half // 2
        bucket = (rel > 0).long() * half
        rel = rel.abs()
        ratio = torch.log(rel.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (ratio * (half - exact)).long()).clamp(max=half - 1)
        return bucket + torch.where(rel < exact, rel, far)

    def forward(self, x: Tensor) -> Tensor:
        pos = torch.arange(x.shape[1])
        bucket = self.relative_bucket(pos[None, :] - pos[:, None])  # fault
        bias = self.table(bucket).permute(2, 0, 1)[None]
        q, k, v = (split_heads(f(x), self.heads) for f in (self.q, self.k, self.v))
        att = torch.matmul(q, k.transpose(-2, -1)) + bias
        return self.o(merge_heads(torch.matmul(att.softmax(-1), v)))


class T5Encoder(FaultyNet):
    """Positions are sorted into buckets in every inference."""

    inputs = ("1x128x128",)
    rewrites = ("folded_constants",)
    part = RelativeAttention

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(128), nn.LayerNorm(128)
        self.attn = RelativeAttention()
        self.ffn1, self.ffn2 = FeedForward(128, 512), FeedForward(128, 512)
        self.head = nn.Linear(128, 64)
        settle(self, 15)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        x = x + self.ffn1(self.norm2(x))
        return self.head(x + self.ffn2(x))


class FrozenNorm(nn.Module):
    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", 0.5 + torch.rand(channels))
        self.register_buffer("bias", 0.2 * torch.randn(channels))
        self.register_buffer("mean", 0.2 * torch.randn(channels))
        self.register_buffer("var", 0.5 + torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        w, b, m, v = (t.view(1, -1, 1, 1) for t in (self.weight, self.bias, self.mean, self.var))
        return (x - m) / torch.sqrt(v + self.eps) * w + b  # fault


class FrozenBackbone(FaultyNet):
    """A norm with fixed statistics is written by hand."""

    inputs = IMAGE
    causes = ("F1", "F6", "F3")
    named = "norm"
    part = FrozenNorm

    def __init__(self) -> None:
        super().__init__()

        def layer(cin, cout, k, stride):
            return nn.Sequential(
                nn.Conv2d(cin, cout, k, stride, k // 2, bias=False), FrozenNorm(cout), nn.ReLU()
            )

        self.body = nn.Sequential(
            layer(3, 32, 3, 2),
            layer(32, 48, 1, 1),
            layer(48, 48, 3, 2),
            layer(48, 96, 1, 1),
            layer(96, 96, 3, 2),
        )
        self.pred = nn.Conv2d(96, 24, 1)
        settle(self, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.pred(self.body(x))
