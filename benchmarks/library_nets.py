"""Networks as their libraries make them by default, in small sizes with random weights.

What precision_zoo.py has are encoders and decoders of one input; these have two inputs, windows that
roll, towers, skips, or layers that recur. Each is `library_nets.py:NAME` to etprof.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import torch
from precision_zoo import First
from torch import nn

_TOKENS, _FEATURES = "tokens", "features"
_IMAGE: Final = (((1, 3, 64, 64), _FEATURES),)
_BETWEEN: Final = {
    "d_model": 256, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "encoder_layers": 2, "decoder_layers": 2,
}  # fmt: skip
_SPECIAL: Final = {
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


class LibraryNet:
    """A network of transformers with its own defaults."""

    kind = ""
    config: ClassVar[dict[str, Any]] = {}
    names: tuple[str, ...] = ()
    """Of its arguments, where there are several."""
    inputs: tuple[tuple[tuple[int, ...], str], ...] = _IMAGE
    requirements: tuple[str, ...] = ("transformers",)

    def get_config(self) -> dict[str, Any]:
        """Returns what makes it small."""
        return dict(self.config)

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        from transformers import AutoConfig, AutoModel

        torch.manual_seed(0)
        config = AutoConfig.for_model(self.kind, **self.get_config())
        network = AutoModel.from_config(config).eval()
        return Pair(network, self.names) if self.names else First(network)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        """Returns token ids and features."""
        generator = torch.Generator().manual_seed(1)
        return tuple(
            torch.randint(1, 500, shape, generator=generator)
            if kind == _TOKENS
            else torch.randn(shape, generator=generator)
            for shape, kind in self.inputs
        )


class Pair(nn.Module):
    """A network of an encoder and a decoder, without a cache."""

    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.names = names

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Maps what is read and what was written to the decoder's output."""
        inputs = dict(zip(self.names, (source, target), strict=True))
        output: torch.Tensor = self.network(**inputs, use_cache=False, return_dict=False)[0]
        return output


class Swin(LibraryNet):
    """Windows that roll."""

    kind = "swin"
    config: ClassVar[dict[str, Any]] = {
        "image_size": 64, "patch_size": 4, "embed_dim": 48, "depths": [2, 2], "num_heads": [3, 6],
        "window_size": 4,
    }  # fmt: skip


class T5(LibraryNet):
    """An encoder and a decoder of text."""

    kind = "t5"
    config: ClassVar[dict[str, Any]] = {
        "d_model": 256, "d_ff": 512, "d_kv": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 512,
    }  # fmt: skip
    names = ("input_ids", "decoder_input_ids")
    inputs = (((1, 32), _TOKENS), ((1, 16), _TOKENS))


class Whisper(LibraryNet):
    """An encoder of speech and a decoder of text."""

    kind = "whisper"
    config: ClassVar[dict[str, Any]] = {
        **_BETWEEN, **_SPECIAL, "vocab_size": 512, "max_source_positions": 64,
        "max_target_positions": 64,
    }  # fmt: skip
    names = ("input_features", "decoder_input_ids")
    inputs = (((1, 80, 128), _FEATURES), ((1, 16), _TOKENS))


class Gemma3(LibraryNet):
    """A decoder of text whose layers see a window."""

    kind = "gemma3_text"
    config: ClassVar[dict[str, Any]] = {
        "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "vocab_size": 512,
        "max_position_embeddings": 64, "use_cache": False, "pad_token_id": 0, "sliding_window": 16,
    }  # fmt: skip
    inputs = (((1, 32), _TOKENS),)


class Conformer(LibraryNet):
    """Convolutions and attention over a signal."""

    kind = "wav2vec2-conformer"
    config: ClassVar[dict[str, Any]] = {
        "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 512, "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4, "position_embeddings_type": "rotary",
    }  # fmt: skip
    inputs = (((1, 4000), _FEATURES),)


class Yolos(LibraryNet):
    """Detection by tokens beside those of an image."""

    kind = "yolos"
    config: ClassVar[dict[str, Any]] = {
        "hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 384, "image_size": [64, 64], "patch_size": 16,
        "num_detection_tokens": 20,
    }  # fmt: skip


class Detr(LibraryNet):
    """Detection by queries on what convolutions made of an image."""

    kind = "detr"

    def get_config(self) -> dict[str, Any]:
        """Returns a small network on a small ResNet."""
        from transformers import ResNetConfig

        backbone = ResNetConfig(
            embedding_size=32, hidden_sizes=[32, 64, 128, 256], depths=[1] * 4,
            out_features=["stage4"],
        )  # fmt: skip
        return {
            **_BETWEEN,
            "use_timm_backbone": False,
            "backbone_config": backbone,
            "num_queries": 20,
        }


class UNet(LibraryNet):
    """Two sizes of an image, and the skip between them, as in the paper's many copies."""

    requirements = ()

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        torch.manual_seed(0)
        return _Skips().eval()


class _Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up = _twice(3, 16), _twice(16, 32), _twice(48, 16)
        self.pool = nn.MaxPool2d(2)
        self.grow = nn.Upsample(scale_factor=2, mode="nearest")
        self.classes = nn.Conv2d(16, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Returns two values for each pixel."""
        skip = self.down(image)
        grown = self.grow(self.deep(self.pool(skip)))
        classes: torch.Tensor = self.classes(self.up(torch.cat([skip, grown], 1)))
        return classes


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU(),
    )  # fmt: skip


class SpeechLstm(LibraryNet):
    """Convolution, two LSTM layers in both directions, and characters."""

    inputs = (((1, 1, 80, 64), _FEATURES),)
    requirements = ()

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        torch.manual_seed(0)
        return _Speech().eval()


class _Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 16, (11, 5), stride=2, padding=(5, 2))
        self.recurrence = nn.LSTM(16 * 40, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.characters = nn.Linear(256, 29)

    def forward(self, spectrum: torch.Tensor) -> torch.Tensor:
        """Maps [1, 1, bands, time] to a score for each character."""
        frames = self.convolution(spectrum).relu().transpose(1, 3).flatten(2)
        scores: torch.Tensor = self.characters(self.recurrence(frames)[0])
        return scores


class TextLstm(LibraryNet):
    """Words, an LSTM, and a class by its last state."""

    inputs = (((1, 32), _TOKENS),)
    requirements = ()

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        torch.manual_seed(0)
        return _Text().eval()


class _Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(512, 128)
        self.recurrence = nn.LSTM(128, 128, batch_first=True)
        self.classes = nn.Linear(128, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Maps [1, time] to a score for each class."""
        _, (hidden, _) = self.recurrence(self.words(ids))
        scores: torch.Tensor = self.classes(hidden[-1])
        return scores


NETS: Final = {
    "swin": Swin, "t5": T5, "whisper": Whisper, "gemma3": Gemma3, "conformer": Conformer,
    "yolos": Yolos, "detr": Detr, "unet": UNet, "speech_lstm": SpeechLstm, "text_lstm": TextLstm,
}  # fmt: skip


def model_of(name: str) -> str | None:
    """Returns how etprof is told of one of these; None for another name."""
    return f"{Path(__file__)}:{NETS[name].__name__}" if name in NETS else None
