"""bfloat16: what XNNPACK takes of it runs, and what it does not take is left to ExecuTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from etprof.cli import main
from etprof.export import lowering, runtime_check, state, upstream
from etprof.export.request import ExportOptions
from etprof.model_registry.eager_model import ExportMethod
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etprof.statistics.likeness import Parity


class Applied(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:  # noqa: ANN401 - what the function returns
        return self.function(*inputs)


def above_one(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape).abs() + 1


TAKEN: dict[str, tuple[nn.Module, int]] = {
    "linear": (nn.Linear(64, 32), 1),
    "linear without bias": (nn.Linear(64, 32, bias=False), 1),
    "linear and relu": (nn.Sequential(nn.Linear(64, 32), nn.ReLU()), 1),
    "hardswish": (nn.Hardswish(), 1),
    "hardtanh": (nn.Hardtanh(), 1),
    "leaky relu": (nn.LeakyReLU(), 1),
    "gelu": (nn.GELU(), 1),
    "padding": (Applied(lambda x: nn.functional.pad(x, (1, 1))), 1),
    "clamp": (Applied(lambda x: x.clamp(1.25, 2)), 1),
    "permutation": (Applied(lambda x: x.permute(1, 0) * 2), 1),
    "power": (Applied(lambda x: x**2), 1),
    "slice": (Applied(lambda x: x[:, 2:9] * 2), 1),
    "view": (Applied(lambda x: x.view(2, -1) * 2), 1),
    "unsqueezed": (Applied(lambda x: x.unsqueeze(1) * 2), 1),
    "concatenation": (Applied(lambda x, y: torch.cat([x, y], 1)), 2),
    **{
        name: (Applied(getattr(torch, name)), 1)
        for name in ("abs", "ceil", "cos", "exp", "floor", "log", "neg", "relu", "rsqrt", "sigmoid")
    },
    **{name: (Applied(getattr(torch, name)), 1) for name in ("sin", "sqrt", "tanh")},
    **{
        name: (Applied(getattr(torch, name)), 2)
        for name in ("add", "div", "maximum", "minimum", "mul", "sub")
    },
}
LEFT: dict[str, tuple[nn.Module, tuple[tuple[int, ...], ...]]] = {
    "convolution": (nn.Conv2d(64, 8, 3), ((1, 64, 8, 8),)),
    "batched product": (Applied(torch.bmm), ((2, 4, 128), (2, 128, 4))),
    "softmax": (nn.Softmax(-1), ((4, 64),)),
    "average pooling": (nn.AvgPool2d(2), ((1, 3, 8, 8),)),
    "max pooling": (nn.MaxPool2d(2), ((1, 3, 8, 8),)),
    "mean": (Applied(lambda x: x.mean((2, 3), keepdim=True)), ((1, 3, 8, 8),)),
    "layer norm": (nn.LayerNorm(256), ((1, 128, 256),)),
    "group norm": (nn.GroupNorm(8, 64), ((1, 64, 32, 32),)),
}


def run(module: nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path) -> tuple[Parity, int]:
    """Returns how like the program is to the model in float32, and its delegate calls."""
    given = tuple(each.bfloat16() for each in inputs)
    wide = tuple(each.float() for each in given)
    exact = state.run_eager(ExportMethod(module.float().eval(), wide))
    method = lowering.cast_method(ExportMethod(module, given), torch.bfloat16)
    traced = {"forward": lowering.trace("forward", method)}
    with upstream.quiet_upstream():
        lowered = lowering.lower(traced, "xnnpack", ExportOptions())
        program = lowering.make_program(lowered.edge, ExportOptions())
    file = folder / "program.pte"
    file.write_bytes(program.buffer)
    (found,) = runtime_check.execute(file, None, "forward", list(given))
    assert found.dtype == torch.bfloat16
    return runtime_check.compare_output(0, found, exact[0]), len(
        lowered.methods["forward"].delegates
    )


@pytest.mark.parametrize("kind", TAKEN)
def test_the_delegate_takes_it_and_it_runs(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, count = TAKEN[kind]
    likeness, delegates = run(module, tuple(above_one((4, 64)) for _ in range(count)), tmp_path)
    assert delegates == 1
    assert likeness.snr_db is None or likeness.snr_db > 45


@pytest.mark.parametrize("kind", LEFT)
def test_it_is_left_to_executorch_and_keeps_what_bfloat16_has(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, shapes = LEFT[kind]
    likeness, delegates = run(module, tuple(map(torch.randn, shapes)), tmp_path)
    assert delegates == 0
    assert likeness.snr_db is None or likeness.snr_db > 40


def test_an_export_says_what_is_delegated_and_keeps_its_floors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "toy_cnn", "--dtype", "bf16", "--outdir", str(tmp_path)]
    assert main([*words, "--operators", "convolution"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "nothing of forward in bf16 is delegated to xnnpack" in told
    assert main(words) == 0
    assert "nothing of forward" not in capsys.readouterr().out
    manifest = load_export_manifest(tmp_path / "toy_cnn_xnnpack_bf16.pte")
    assert manifest is not None
    check = manifest.methods["forward"].check
    assert check is not None
    assert check.floors is not None
    assert (check.passed, check.floors.snr_db) == (True, 30)
    assert {each.dtype for each in manifest.methods["forward"].inputs} == {"bfloat16"}
