"""ViT-Tiny: the Vision Transformer of Dosovitskiy et al. (2020) in the smallest size of DeiT.

Touvron et al. (2021), table 1: width 192, 12 layers, 3 heads, patches of 16x16. The names in the
state dict are timm's (`vit_tiny_patch16_224`), so its checkpoints load with `--weights`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from etprof.model_registry.eager_model import EagerModelBase

from ..images import make_image, make_images


class PatchEmbed(nn.Module):
    """Cuts an image into patches and projects each one."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Maps [N, 3, H, W] to [N, patches, width]."""
        patches: torch.Tensor = self.proj(image)
        return patches.flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [N, tokens, width] to the same shape."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = scaled_dot_product_attention(query, key, value)
        result: torch.Tensor = self.proj(attended.transpose(1, 2).reshape(batch, tokens, width))
        return result


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [N, tokens, width] to the same shape."""
        result: torch.Tensor = self.fc2(self.act(self.fc1(x)))
        return result


class Block(nn.Module):
    """One layer of the encoder, normalised before each part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [N, tokens, width] to the same shape."""
        x = x + self.attn(self.norm1(x))
        result: torch.Tensor = x + self.mlp(self.norm2(x))
        return result


class ViTTiny(nn.Module):
    """5,717,416 parameters."""

    def __init__(self, width: int = 192, depth: int = 12, heads: int = 3) -> None:
        super().__init__()
        # As large as a patch's projection, which training makes them: a smaller class token would
        # get only a few steps of an integer scale that the patches need.
        self.cls_token = nn.Parameter(0.5 * torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(0.5 * torch.randn(1, 14 * 14 + 1, width))
        self.patch_embed = PatchEmbed(width, 16)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Maps images of [N, 3, 224, 224] to scores of [N, 1000]."""
        patches = self.patch_embed(image)
        tokens = torch.cat((self.cls_token.expand(image.shape[0], -1, -1), patches), dim=1)
        x = self.norm(self.blocks(tokens + self.pos_embed))
        scores: torch.Tensor = self.head(x[:, 0])
        return scores


class ViTTinyModel(EagerModelBase):
    """Classifies one image of 224x224."""

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        return ViTTiny()

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns one normalised image."""
        return (make_image(224),)

    def get_calibration_data(self) -> list[tuple[torch.Tensor]]:
        """Returns eight images."""
        return make_images(224, 8)
