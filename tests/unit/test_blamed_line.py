"""Which line of the model's code is blamed for an error of the export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import etprof
from etprof.export.lowering import blamed_line

if TYPE_CHECKING:
    from collections.abc import Callable


def blame(raising: Callable[[], object]) -> str:
    try:
        raising()
    except Exception as error:  # noqa: BLE001 - whatever PyTorch raises
        return blamed_line(error)
    raise AssertionError


def called_by_etprof(model: Callable[[], object]) -> object:
    """Calls the model from a frame of etprof's."""
    path = Path(etprof.__file__).parent / "export/somewhere.py"
    names: dict[str, Callable[[Callable[[], object]], object]] = {}
    exec(compile("def call(model):\n    return model()\n", str(path), "exec"), names)  # noqa: S102
    return names["call"](model)


def code_of(line: str) -> str:
    assert line.startswith(f" ({__file__}:")
    assert line.endswith(")")
    return line.rpartition(": ")[2].removesuffix(")")


def multiply() -> torch.Tensor:
    return torch.nn.functional.linear(torch.ones(1, 2), torch.ones(3, 4))


def project() -> object:
    return torch.nn.Linear(3, 2)(torch.ones(2))


def test_it_is_the_innermost_line_of_the_model() -> None:
    assert code_of(blame(lambda: called_by_etprof(multiply))).startswith("return torch.nn")
    # PyTorch's own frames are none of the model's.
    assert code_of(blame(lambda: called_by_etprof(project))) == (
        "return torch.nn.Linear(3, 2)(torch.ones(2))"
    )


def test_without_a_frame_of_etprofs_all_are_the_models() -> None:
    with pytest.raises(ValueError, match="nothing") as caught:
        raise ValueError("nothing")
    assert code_of(blamed_line(caught.value)) == 'raise ValueError("nothing")'


def test_no_line_is_blamed_for_an_error_of_etprof_itself() -> None:
    assert blame(lambda: called_by_etprof(None)) == ""  # type: ignore[arg-type]
