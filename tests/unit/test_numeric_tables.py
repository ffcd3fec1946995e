"""What a comparison with eager says beside its figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from etprof.tables.numerics import notes


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({}, ()),
        ({"passes": 2}, ("The taps are spread over 2 programs, each within the memory asked for",)),
        ({"prevented": ["conv + relu"]},
         ("Taps kept the delegate from making one operator of conv + relu",)),
        ({"checks": {"off": None, "sme2": 81.5}},
         (("SME2: taps changed the outputs (81.5 dB), so values inside may differ from those of "
          "the program without taps too"),)),
    ],
)  # fmt: skip
def test_what_taps_changed_is_told_and_nothing_else(
    facts: dict[str, Any], told: tuple[str, ...]
) -> None:
    checks = facts.pop("checks", {})
    gaps: Any = SimpleNamespace(
        **{"prevented": [], "passes": 1, **facts},
        checks={mode: SimpleNamespace(snr_db=ratio) for mode, ratio in checks.items()},
    )
    assert notes(gaps) == told
