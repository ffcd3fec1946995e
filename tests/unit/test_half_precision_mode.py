"""Eager PyTorch in half precision: what it has no kernel for is computed in float32, or is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etprof.base.errors import ExportError
from etprof.export import runtime_check
from etprof.export.changes.half_constants import HalfPrecisionMode
from etprof.export.state import EagerSteps
from etprof.model_registry.eager_model import ExportMethod
from etprof.run.accuracy import FLOORS

IMAGE = torch.linspace(-1, 1, 3 * 12 * 12).reshape(1, 3, 12, 12)


def smaller(image: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.interpolate(image, (5, 5), mode="bilinear", antialias=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_kernel_that_pytorch_lacks_runs_in_float32(dtype: torch.dtype) -> None:
    image = IMAGE.to(dtype)
    with pytest.raises(NotImplementedError):
        smaller(image)
    with HalfPrecisionMode():  # type: ignore[no-untyped-call]
        computed = smaller(image)
    assert torch.equal(computed, smaller(image.float()).to(dtype))
    assert computed.dtype == dtype


def test_what_is_written_into_an_argument_is_not_computed_elsewhere() -> None:
    image, result = IMAGE.half(), torch.empty(1, 3, 5, 5, dtype=torch.float16)
    operator = torch.ops.aten._upsample_bilinear2d_aa.out
    with pytest.raises(NotImplementedError), HalfPrecisionMode():  # type: ignore[no-untyped-call]
        operator(image, [5, 5], False, None, None, out=result)


def test_what_pytorch_lacks_in_float32_stays_an_error() -> None:
    def missing(x: torch.Tensor) -> torch.Tensor:
        resized: torch.Tensor = torch.ops.aten._upsample_bilinear2d_aa(x, [5, 5], False)
        return resized

    with pytest.raises(NotImplementedError), HalfPrecisionMode():  # type: ignore[no-untyped-call]
        missing(IMAGE.to(torch.int32))


def test_a_converted_model_that_fails_in_eager_is_an_export_error() -> None:
    """It was a traceback of etprof's own, with exit code 70."""

    class Failing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError(f"no kernel for {x.dtype}\nmore")

    method = ExportMethod(Failing(), (torch.zeros(2, dtype=torch.float16),))
    with pytest.raises(ExportError) as caught:
        runtime_check.check_program(
            Path("absent.pte"), None, "forward", method, EagerSteps([[IMAGE]], [[IMAGE]]),
            precision="fp16", floors=FLOORS["fp16"],
        )  # fmt: skip
    assert str(caught.value).startswith(
        "method 'forward' in fp16 fails in eager PyTorch, so that nothing says what the program "
        "should give: RuntimeError: no kernel for torch.float16 ("
    )
    assert str(caught.value).endswith("; export it as fp32")
