"""What SME2 could do at most: a ceiling, and by the device's own peaks a bound on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.outlook import Outlook, predict_sme2
from etprof.backends.registry import BACKENDS
from tests.unit.test_roofline import peaks, product, stream, took

if TYPE_CHECKING:
    from etprof.analysis.roofline import RooflinePoint, Roofs
    from etprof.run.peaks import Peaks

WITH_SME2 = (
    product("fp32", 400.0, sme="sme2", low=200.0),
    stream(2**13, 20.0, sme="sme2", low=10.0),
    stream(2**26, 10.0, sme="sme2", low=5.0),
)


class Detail:
    """An operator that takes half of an inference, 40 µs, and has an SME2 kernel or none."""

    def __init__(self, macs: int | None, *, sme2: bool | None) -> None:
        self.macs = macs
        prediction = SimpleNamespace(sme2=sme2, packed_type="PF32", reason="")
        self.attribution = SimpleNamespace(prediction=prediction)
        self.row = SimpleNamespace(times=took(40_000), backend=BACKENDS[0])

    def placed(self, roofs: Roofs) -> RooflinePoint | None:
        if self.macs is None:
            return None
        return roofs.place(took(40_000), 0, self.macs, 2**13, "fp32")


def outlook(
    macs: int | None, *, known: Peaks | None = None, sme: str = "off", other: bool | None = False
) -> Outlook | None:
    insight: Any = SimpleNamespace(
        experiment=SimpleNamespace(sme=sme, threads=1),
        details=[Detail(macs, sme2=True), Detail(10**6, sme2=other)],
    )
    return predict_sme2(insight, known)


def test_without_peaks_there_is_a_ceiling_and_no_bound() -> None:
    found = outlook(10**6)
    assert found is not None
    assert (found.operators, found.share, found.ceiling, found.bound) == (1, 0.5, 2.0, None)
    # AND peaks without SME2, or at other threads, say nothing
    for others in (
        peaks(),
        peaks(found=[each.model_copy(update={"threads": 2}) for each in WITH_SME2]),
    ):
        found = outlook(10**6, known=others)
        assert found is not None
        assert found.bound is None


def test_the_bound_is_what_work_and_peaks_leave() -> None:
    found = outlook(10**6, known=peaks("a phone", WITH_SME2))
    assert found is not None
    bound = found.bound
    assert bound is not None
    # 2 x 10^6 operations take 5 000 to 10 000 ns of the 40 000 that were half of the inference.
    assert (bound.device, bound.unplaced) == ("a phone", 0)
    assert bound.high == pytest.approx(1 / (0.5 + 0.5 * 5_000 / 40_000))
    assert bound.low == pytest.approx(1 / (0.5 + 0.5 * 10_000 / 40_000))
    assert found.ceiling is not None
    assert bound.high < found.ceiling


def test_where_memory_decides_the_bound_has_both_ends_of_its_peak() -> None:
    found = outlook(10, known=peaks(found=WITH_SME2))
    assert found is not None
    assert found.bound is not None
    # 8 192 bytes at 20 and at 10 bytes a nanosecond, of the 40 000 ns that were half of the inference.
    assert found.bound.high == pytest.approx(1 / (0.5 + 0.5 * 409.6 / 40_000))
    assert found.bound.low == pytest.approx(1 / (0.5 + 0.5 * 819.2 / 40_000))


def test_sme2_makes_nothing_slower_in_a_bound() -> None:
    """More work than the peaks could do in the time: then peaks or work are not what they seem."""
    found = outlook(10**9, known=peaks(found=WITH_SME2))
    assert found is not None
    assert found.bound is not None
    assert (found.bound.low, found.bound.high) == (1.0, 1.0)


def test_what_has_no_bytes_may_take_no_time_and_is_told() -> None:
    found = outlook(None, known=peaks(found=WITH_SME2))
    assert found is not None
    assert found.bound is not None
    assert (found.bound.low, found.bound.high, found.bound.unplaced) == (1.0, 2.0, 1)


def test_a_run_with_sme_needs_no_outlook() -> None:
    assert outlook(10**6, sme="sme2") is None


def test_an_operator_of_which_nobody_knows_is_counted_as_such() -> None:
    found = outlook(10**6, other=None)
    assert found is not None
    assert found.unknown == 1
