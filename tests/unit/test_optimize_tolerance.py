"""A program may be a little further from eager than the plain one: on the median of several inputs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from etprof.optimize.search import FAR_DB, Search
from etprof.run.delegation import DelegationReport
from etprof.run.optimization import Trial, describe_trial
from etprof.run.program import CheckedOutput, ExportCheck, ExportManifest, MethodFiles
from tests.unit.test_optimize_search import program


def search_with(losses: Sequence[float], far_db: float = FAR_DB) -> tuple[Search, list[int]]:
    """A search that knows these losses, and how often it was asked for them."""
    asked: list[int] = []

    def losses_of(_: Trial, __: Trial) -> Sequence[float]:
        asked.append(1)
        return losses

    return Search([], program, 2.0, lambda: True, losses_of=losses_of, far_db=far_db), asked


PLAIN = program((), snr_db=60.0, spare_db=10.0)


def test_a_loss_within_the_tolerance_asks_for_no_further_input() -> None:
    search, asked = search_with([])
    assert search.objection(program(("r",), snr_db=58.0, spare_db=8.0), PLAIN) is None
    assert asked == []


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        # Of six values 95 % lie between the ends and the next: 0.643 of 1 and 0.357 of 2.
        ([1.0, 2.0, 2.0, 3.0, 5.0, 4.0], None),
        (
            [2.9, 3.1, 3.0, 2.9, 3.1, 3.0],
            "it loses 2.90 dB … 3.10 dB over 6 inputs, more than 2.00 dB",
        ),
        # One that goes wrong altogether makes the others no better.
        ([3.0] * 9 + [3000.0], "it loses 3.00 dB … 3.00 dB over 10 inputs, more than 2.00 dB"),
        # Nearer on most inputs, however far on the example.
        ([2.5, -3.0, 0.1, -0.4, 0.2, -0.1], None),
        # Too few to say anything of their spread: the example's own loss counts.
        ([9.0] * 5, "it loses 2.50 dB, more than 2.00 dB"),
        ([], "it loses 2.50 dB, more than 2.00 dB"),
    ],
)
def test_a_larger_loss_is_judged_by_its_median_over_inputs(
    losses: list[float], reason: str | None
) -> None:
    """L3-9: 2.27 dB on one input, 0.06 on the mean of a hundred; a better program was rejected."""
    search, asked = search_with(losses)
    assert search.objection(program(("r",), snr_db=57.5, spare_db=7.5), PLAIN) == reason
    assert len(asked) == 1


def test_far_above_what_is_asked_for_no_loss_counts_unless_somebody_asks() -> None:
    losing = program(("r",), snr_db=100.0, spare_db=FAR_DB)
    plain = program((), snr_db=130.0, spare_db=FAR_DB + 30)
    for far_db, is_rejected in ((FAR_DB, False), (float("inf"), True)):
        search, _ = search_with([30.0] * 6, far_db)
        assert (search.objection(losing, plain) is not None) == is_rejected
    near = losing.model_copy(update={"spare_db": FAR_DB - 0.1})
    assert search_with([30.0] * 6)[0].objection(near, plain) is not None


def test_the_room_above_what_is_asked_for_is_that_of_the_nearest_output() -> None:
    def check(floor_db: float, *ratios: float | None) -> MethodFiles:
        floors = {"snr_db": floor_db, "cosine": 0.99, "top1": 0.9}
        outputs = tuple(CheckedOutput(index=i, snr_db=ratio) for i, ratio in enumerate(ratios))
        return MethodFiles(
            check=ExportCheck.model_validate({"floors": floors, "outputs": outputs, "passed": True})
        )

    def trial_of(**methods: MethodFiles) -> Trial:
        manifest = ExportManifest(
            schema_version=1, model="m", backend="xnnpack", precision="fp16", methods=methods
        )
        report = DelegationReport(schema_version=1, model="m", methods={})
        return describe_trial(program(()), manifest, report, 1)

    trial = trial_of(prefill=check(40.0, 70.0, None), decode=check(60.0, 75.0, 90.0))
    assert (trial.snr_db, trial.spare_db) == (70.0, 15.0)
    assert trial_of(forward=check(40.0, None)).spare_db is None
