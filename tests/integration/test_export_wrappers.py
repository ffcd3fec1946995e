"""The wrappers around models whose code is elsewhere, with small stand-ins for that code."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from etprof.export.model_loading import load_methods

# The functions that the wrappers call, with the signatures of the authors' repositories.
EFFICIENT_SAM = """
    from torch import nn

    class Sam(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.image_encoder = nn.Conv2d(3, width, 16, 16)

    def build_efficient_sam(encoder_patch_embed_dim, encoder_num_heads, checkpoint=None):
        return Sam(encoder_patch_embed_dim)
"""
EDGETAM = """
    from torch import nn

    class Tracker(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Conv2d(3, 8, 16, 16)
            self.memory = nn.Linear(4, 4)

        def forward_image(self, image):
            x = self.trunk(image)
            return {"backbone_fpn": [x, x[:, :4]], "vision_pos_enc": None}

    def build_sam2(config_file, ckpt_path=None, device="cuda"):
        assert (config_file, ckpt_path, device) == ("configs/edgetam.yaml", None, "cpu")
        return Tracker()
"""


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], None]]:
    """Makes a module importable for one test."""
    packages = set()

    def write(module: str, text: str) -> None:
        package, name = module.split(".")
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        packages.add(package)

    monkeypatch.syspath_prepend(str(tmp_path))
    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def test_efficient_sam_is_its_image_encoder(install: Callable[[str, str], None]) -> None:
    install("efficient_sam.efficient_sam", EFFICIENT_SAM)
    method = load_methods("efficient_sam")["forward"]
    (image,) = method.inputs
    assert 0 <= float(image.min()) < float(image.max()) <= 1
    with torch.no_grad():
        assert method.module(image).shape == (1, 192, 64, 64)


def test_edgetam_gives_a_tuple_of_features(install: Callable[[str, str], None]) -> None:
    install("sam2.build_sam", EDGETAM)
    method = load_methods("edgetam")["forward"]
    with torch.no_grad():
        features = method.module(*method.inputs)
    assert [list(each.shape) for each in features] == [[1, 8, 64, 64], [1, 4, 64, 64]]
