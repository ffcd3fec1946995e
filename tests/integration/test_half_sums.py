"""X2: what ExecuTorch sums in half precision computes in float32 inside the exported graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from etprof.export import lowering, runtime_check, state, upstream
from etprof.export.changes import half_sums
from etprof.export.request import ExportOptions
from etprof.model_registry.eager_model import ExportMethod

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


CASES = {
    "layer norm": (nn.LayerNorm(256), (1, 128, 256)),
    "variance": (Applied(lambda x: x.var(-1)), (1, 16, 2048)),
    "cumulative sum": (Applied(lambda x: x.cumsum(-1)), (1, 4, 2048)),
    "RMS norm": (nn.RMSNorm(256), (1, 128, 256)),
    "instance norm": (nn.InstanceNorm2d(16), (1, 16, 96, 96)),
    "group norm": (nn.GroupNorm(8, 64), (1, 64, 32, 32)),
    "mean": (Applied(lambda x: x.mean(-1)), (1, 16, 2048)),
}
RIGHT_ALREADY = {"RMS norm", "mean"}
"""What PyTorch takes apart in float32, or ExecuTorch sums as it should."""


def ratio_db(
    module: nn.Module, shape: tuple[int, ...], folder: Path, *, keep: bool = False
) -> tuple[float, dict[str, int]]:
    """The fp16 program's distance from the float32 model, and what was widened."""
    torch.manual_seed(0)
    inputs = (torch.randn(shape).half(),)
    exact = state.run_eager(ExportMethod(module.float(), (inputs[0].float(),)))
    method = lowering.cast_method(ExportMethod(module, inputs), torch.float16)
    options = ExportOptions(keep_fp16_sums=keep)
    with upstream.quiet_upstream():
        lowered = lowering.lower({"forward": lowering.trace("forward", method)}, "xnnpack", options)
        program = lowering.make_program(lowered.edge, options)
    file = folder / "program.pte"
    file.write_bytes(program.buffer)
    (found,) = runtime_check.execute(file, None, "forward", list(inputs))
    assert found.dtype == torch.float16
    snr_db = runtime_check.compare_output(0, found, exact[0]).snr_db
    return 999 if snr_db is None else snr_db, lowered.widened.get("forward", {})


@pytest.mark.parametrize("kind", CASES)
def test_half_precision_keeps_what_eager_keeps(kind: str, tmp_path: Path) -> None:
    module, shape = CASES[kind]
    snr_db, widened = ratio_db(module, shape, tmp_path)
    assert snr_db > 60
    assert widened == ({} if kind in RIGHT_ALREADY else {kind: 1})


def test_it_may_be_left_as_it_is_and_then_is_noise(tmp_path: Path) -> None:
    module, shape = CASES["layer norm"]
    snr_db, widened = ratio_db(module, shape, tmp_path, keep=True)
    assert (snr_db < 10, widened) == (True, {})


class Net(nn.Module):
    """A weight that a norm and something else read, and a norm without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.plain = nn.LayerNorm(64, elementwise_affine=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.plain(self.norm(x)), self.norm.bias.sin() + x


def test_weights_are_stored_in_float32_unless_others_read_them() -> None:
    method = lowering.cast_method(ExportMethod(Net(), (torch.randn(1, 4, 64),)), torch.float16)
    traced = {"forward": lowering.trace("forward", method)}
    with upstream.quiet_upstream():
        lowered = lowering.lower(traced, "xnnpack", ExportOptions())
    weights = lowered.edge.exported_program("forward").state_dict
    assert weights["norm.weight"].dtype == torch.float32
    assert weights["norm.bias"].dtype == torch.float16
    assert lowered.widened == {"forward": {"layer norm": 2}}
    reasons = [each.reason for each in lowered.methods["forward"].operators]
    assert reasons.count(half_sums.REASON) == 5  # x, the bias, three results of which one is x
