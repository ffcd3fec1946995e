"""Small networks with one known fault each, written with the rules of the findings at hand.

Each is `faulty_nets.py:NAME` to etprof, with `--input` of its `inputs`. The faulty line ends in the
comment that `FAULT` has. strange_nets.py has those of somebody who had not read the rules.
"""

from __future__ import annotations

from typing import ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

FAULT: Final = "# fault"
IMAGE: Final = ("1x3x96x96",)
TOKENS: Final = ("1x64x128",)


class FaultyNet(nn.Module):
    """A network, what is wrong with it, and what takes the fault away."""

    inputs: ClassVar[tuple[str, ...]] = IMAGE
    """As `--input` takes them."""
    precision: ClassVar[str] = "fp32"
    causes: ClassVar[tuple[str, ...]] = ("F5",)
    """Rules of which one has to come first; none where the export itself has taken the fault away."""
    rewrites: ClassVar[tuple[str, ...]] = ()
    """What the printed command has to ask for; nothing where the source has to change."""
    part: ClassVar[type[nn.Module] | None] = None
    """The module with the faulty line, where that is not the network itself."""
    named: ClassVar[str] = ""
    """What the answer has to name where there is no command."""


def trunk(channels: int = 64) -> nn.Sequential:
    """Returns three ordinary convolutions, which halve an image twice."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, channels, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
    )  # fmt: skip


def layers(width: int = 128) -> nn.Sequential:
    """Returns a block of two linear layers."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))


class LayerNorms(FaultyNet):
    """Norms between small layers."""

    inputs = ("1x128x96",)
    causes = ("F1", "F5")
    rewrites = ("spelled_norms",)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(96, 96) for _ in range(6))
        self.norms = nn.ModuleList(nn.LayerNorm(96) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        """Adds each layer's output to its input."""
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + block(norm(x))  # fault
        return x


class GroupNorms(FaultyNet):
    """A group norm behind each convolution."""

    causes = ("F1", "F5")
    rewrites = ("spelled_norms",)

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk()
        self.convs = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.GroupNorm(8, 64) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to features."""
        x = self.trunk(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = functional.relu(norm(conv(x)))  # fault
        return x


class InstanceNorms(FaultyNet):
    """A network of styles, with instance norms at the full size."""

    inputs = ("1x3x64x64",)
    causes = ("F1", "F5")
    rewrites = ("spelled_norms",)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 32, 3, padding=1)
        self.norm = nn.InstanceNorm2d(32, affine=True)
        self.last = nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to an image."""
        x = functional.relu(self.first(x))
        x = functional.relu(self.norm(self.second(x)))  # fault
        y: Tensor = self.last(x)
        return y


class BatchNormsBefore(FaultyNet):
    """A dense net: a batch norm before each small convolution, where ExecuTorch folds none."""

    causes = ("F1",)
    named = "fold"

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, stride=2, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(64 + 8 * i) for i in range(6))
        self.convs = nn.ModuleList(nn.Conv2d(64 + 8 * i, 8, 1) for i in range(6))

    def forward(self, x: Tensor) -> Tensor:
        """Appends each block's output to its input."""
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = functional.relu(norm(x))  # fault
            x = torch.cat((x, conv(y)), 1)
        return x


class RmsNormsInFloat(FaultyNet):
    """A norm in single precision inside a network in half."""

    inputs = TOKENS
    precision = "fp16"
    causes = ("F1", "F5")
    rewrites = ("delegated_casts",)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(layers() for _ in range(4))
        self.scale = nn.Parameter(torch.ones(128))

    def normalise(self, x: Tensor) -> Tensor:
        """Divides by the root of the mean square."""
        wide = x.float()  # fault
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(
            x.dtype
        ) * self.scale

    def forward(self, x: Tensor) -> Tensor:
        """Adds each layer's output to its input."""
        for block in self.blocks:
            x = x + block(self.normalise(x))
        return x


class ChannelsLastCode(FaultyNet):
    """Blocks that turn to channels last and back for an activation alone."""

    causes = ("F2", "F2b", "F2c", "F2d")
    rewrites = ("merged_transposes",)

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk()
        self.convs = nn.ModuleList(nn.Conv2d(64, 64, 1) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to features."""
        x = self.trunk(x)
        for conv in self.convs:
            rows = conv(x).permute(0, 2, 3, 1).permute(0, 3, 1, 2)  # fault
            x = functional.relu(rows)
        return x


class LargeTransposes(FaultyNet):
    """The whole image is laid out anew before its first convolution and behind the last."""

    inputs = ("1x160x160x16",)
    causes = ("F2d", "F2c", "F2")
    named = "transpos"

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image with its channels last to one with its channels last."""
        return functional.relu(self.conv(x.permute(0, 3, 2, 1)))  # fault


class StandardisedWeights(FaultyNet):
    """A convolution whose weights are standardised in every inference."""

    causes = ("F3b", "F5", "F3")
    rewrites = ("folded_constants",)

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk()
        self.weight = nn.Parameter(torch.randn(64, 64, 3, 3) / 24)

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to features."""
        centred = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return functional.conv2d(self.trunk(x), centred, padding=1)  # fault


class UnfoldedPatches(FaultyNet):
    """Patches are laid out by hand before a product, as a convolution would do inside."""

    inputs = ("1x16x32x32",)
    named = "im2col"

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 16, 3, padding=1)
        self.kernel = nn.Linear(16 * 9, 32)

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to features of each pixel."""
        x = functional.relu(self.first(x))
        patches = functional.unfold(x, 3, padding=1)  # fault
        y: Tensor = self.kernel(patches.transpose(1, 2))
        return y


class BooleanMask(FaultyNet):
    """Attention with a boolean mask."""

    inputs = ("1x64x128", "bool:1x1x64x64")
    rewrites = ("plain_attention",)

    def __init__(self) -> None:
        super().__init__()
        self.mixes = nn.ModuleList(nn.Linear(128, 384) for _ in range(2))
        self.blocks = nn.ModuleList(layers() for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Maps tokens to tokens."""
        for mix, block in zip(self.mixes, self.blocks, strict=True):
            q, k, v = (t.unflatten(-1, (4, 32)).transpose(1, 2) for t in mix(x).chunk(3, -1))
            heads = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # fault
            x = x + block(heads.transpose(1, 2).flatten(2))
        return x


class GroupedHeads(FaultyNet):
    """Attention with fewer heads of keys than of queries."""

    inputs = TOKENS
    rewrites = ("plain_attention",)

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            nn.Linear(128, 128),
            nn.Linear(128, 32),
            nn.Linear(128, 32),
        )
        self.block = layers()

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens to tokens."""
        queries = self.query(x).unflatten(-1, (4, 32)).transpose(1, 2)
        keys, values = (f(x).unflatten(-1, (1, 32)).transpose(1, 2) for f in (self.key, self.value))
        attend = functional.scaled_dot_product_attention
        heads = attend(queries, keys, values, enable_gqa=True)  # fault
        y: Tensor = x + self.block(heads.transpose(1, 2).flatten(2))
        return y


class GatesInHalf(FaultyNet):
    """SiLU in half precision, which is computed between casts."""

    precision = "fp16"
    rewrites = ("half_activations",)

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk()
        self.convs = nn.ModuleList(nn.Conv2d(64, 64, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to features."""
        x = self.trunk(x)
        for conv in self.convs:
            x = functional.silu(conv(x))  # fault
        return x


class Mish(FaultyNet):
    """An activation that the delegate does not have."""

    named = "softplus"

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk()
        self.convs = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to features."""
        x = self.trunk(x)
        for conv in self.convs:
            x = conv(x)
            x = x * torch.tanh(functional.softplus(x))  # fault
        return x


class CubedGelu(FaultyNet):
    """The GELU of GPT-2, with a third power."""

    inputs = TOKENS
    rewrites = ("whole_powers",)

    def __init__(self) -> None:
        super().__init__()
        self.ups = nn.ModuleList(nn.Linear(128, 512) for _ in range(3))
        self.downs = nn.ModuleList(nn.Linear(512, 128) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens to tokens."""
        for up, down in zip(self.ups, self.downs, strict=True):
            y = up(x)
            inner = 0.7978845608 * (y + 0.044715 * torch.pow(y, 3.0))  # fault
            x = x + down(0.5 * y * (1.0 + torch.tanh(inner)))
        return x


class LongShortMemory(FaultyNet):
    """A recurrent layer behind a convolution."""

    inputs = ("1x40x32",)
    rewrites = ("plain_recurrences",)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(40, 64, 3, padding=1)
        self.cells = nn.LSTM(64, 64, batch_first=True)
        self.head = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        """Maps frames to a score each."""
        features = functional.relu(self.conv(x)).transpose(1, 2)
        states, _ = self.cells(features)  # fault
        y: Tensor = self.head(states)
        return y


class GatedMemory(FaultyNet):
    """A recurrent layer in both directions."""

    inputs = ("1x24x48",)
    rewrites = ("plain_recurrences",)

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(48, 48, batch_first=True, bidirectional=True)
        self.head = layers(96)

    def forward(self, x: Tensor) -> Tensor:
        """Maps frames to a score each."""
        y: Tensor = self.head(self.cells(x)[0])  # fault
        return y


class AdaptivePool(FaultyNet):
    """A pyramid of pools."""

    inputs = ("1x3x96x96",)
    rewrites = ("plain_pools",)

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk()
        self.heads = nn.ModuleList(nn.Conv2d(64, 64, 1) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Maps an image to its features in three sizes."""
        x = self.trunk(x)
        sizes = (3, 6, 12)
        return tuple(
            head(functional.adaptive_avg_pool2d(x, size))  # fault
            for head, size in zip(self.heads, sizes, strict=True)
        )


class RolledWindows(FaultyNet):
    """Windows that roll between layers."""

    inputs = ("1x16x16x128",)
    rewrites = ("plain_views",)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(layers() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image of tokens to another."""
        for block in self.blocks:
            x = x + block(torch.roll(x, (-2, -2), (1, 2)))  # fault
        return x


class NearestDecoder(FaultyNet):
    """A decoder that repeats pixels."""

    rewrites = ("plain_views",)

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk(32)
        self.convs = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to a map of its size."""
        x = self.trunk(x)
        for conv in self.convs:
            x = functional.relu(conv(functional.interpolate(x, scale_factor=2.0)))  # fault
        return x


class PatchMerging(FaultyNet):
    """Every second token in both directions, four times, as between the stages of a Swin."""

    inputs = ("1x32x32x64",)
    rewrites = ("plain_steps",)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens to a quarter as many."""
        x = torch.relu(self.first(x))
        x = torch.cat([x[:, i::2, j::2] for i in range(2) for j in range(2)], -1)  # fault
        y: Tensor = self.second(x)
        return y


class MeanOfTokens(FaultyNet):
    """Squeezes of a mean, between two blocks."""

    inputs = ("1x128x128",)
    rewrites = ("kept_dimensions",)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(layers() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Subtracts the mean of the tokens before each block."""
        for block in self.blocks:
            x = block(x - x.mean(1).unsqueeze(1))  # fault
        return x


class LastToken(FaultyNet):
    """One row is taken by its number again and again."""

    inputs = ("1x16x128",)
    rewrites = ("plain_views",)

    def __init__(self) -> None:
        super().__init__()
        self.block = layers()
        self.mixer = nn.Linear(128, 128)

    def forward(self, x: Tensor) -> Tensor:
        """Mixes the rows one after the other."""
        x = self.block(x)
        state = torch.zeros(1, 128)
        for step in range(16):
            state = torch.tanh(self.mixer(state) + x[:, step])  # fault
        return state


class RunningSum(FaultyNet):
    """A running sum in the middle, which the delegate does not have."""

    inputs = ("1x256x128",)
    named = "cumsum"

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(layers() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens to tokens."""
        for block in self.blocks:
            x = block(torch.cumsum(x, 1) / 256)  # fault
        return x


class BestOfThem(FaultyNet):
    """The best rows are chosen in the middle."""

    inputs = ("1x256x128",)
    named = "topk"

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers(), layers()

    def forward(self, x: Tensor) -> Tensor:
        """Maps the best half of the tokens."""
        best = torch.topk(self.first(x), 128, 1).values  # fault
        y: Tensor = self.second(best)
        return y


class DepthwiseOnly(FaultyNet):
    """Wide depthwise filters take more time than what they are between."""

    causes = ("F3",)
    named = "convolution"

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk()
        self.filters = nn.ModuleList(nn.Conv2d(64, 64, 7, padding=3, groups=64) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to features."""
        x = self.trunk(x)
        for depthwise in self.filters:
            x = functional.relu(depthwise(x))  # fault
        return x


class PairsOfChannels(FaultyNet):
    """One convolution of many small groups among fast ones."""

    causes = ("F3",)
    named = "convolution"

    def __init__(self) -> None:
        super().__init__()
        self.trunk = trunk()
        self.dense = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(3))
        self.paired = nn.Conv2d(64, 256, 3, padding=1, groups=32)
        self.last = nn.Conv2d(256, 64, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image to features."""
        x = self.trunk(x)
        for conv in self.dense:
            x = functional.relu(conv(x))
        y: Tensor = self.last(functional.relu(self.paired(x)))  # fault
        return y


class TinyOperators(FaultyNet):
    """Some hundred additions of a few values each."""

    inputs = ("1x8",)
    causes = ("F12",)
    named = "overhead"

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Adds and halves in turns."""
        for _ in range(100):
            x = torch.relu(x + 0.5) * 0.5  # fault
        y: Tensor = self.head(x)
        return y


class MaskedFill(FaultyNet):
    """Scores are masked by a fill with minus infinity."""

    inputs = ("1x64x128", "bool:1x1x1x64")
    rewrites = ()
    named = "masked_fill"

    def __init__(self) -> None:
        super().__init__()
        self.mixes = nn.ModuleList(nn.Linear(128, 384) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Maps tokens to tokens."""
        for mix in self.mixes:
            q, k, v = (t.unflatten(-1, (4, 32)).transpose(1, 2) for t in mix(x).chunk(3, -1))
            scores = (q @ k.transpose(2, 3) / 5.7).masked_fill(mask, -1e4)  # fault
            x = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return x
