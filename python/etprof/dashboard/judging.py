"""Changes as pages show them: judged by the gate, in a sign, a word and a colour."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from etprof.base.units import format_change, format_ratio
from etprof.history.gate import judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etprof.dashboard.visit import Catalogue
    from etprof.history.gate import Judgement
    from etprof.history.noise import NoiseFloor
    from etprof.history.schema import Metric, Run

View = dict[str, Any]
_COLOURS: Final = {"regression": "worse", "improvement": "better"}
"""Everything else is grey."""
_ONE_NIGHT: Final = timedelta(days=1)


class Judge:
    """Judges changes of one metric with the noise floor of the device, as the gate does.

    A device's floor is of the runs before those that are judged: the newest of `candidates` on the
    device and what was measured within a day before it.
    """

    def __init__(self, catalogue: Catalogue, metric: str, candidates: Iterable[Run]) -> None:
        self._catalogue = catalogue
        self._metric = metric
        self._floors: dict[str, NoiseFloor | None] = {}
        self._runs: dict[str, list[Run]] = {}
        for run in candidates:
            self._runs.setdefault(run.device, []).append(run)

    def change(
        self,
        device: str,
        baseline: Metric | None,
        candidate: Metric | None,
        against: str,
    ) -> View | None:
        """Returns the change for a template; None where there is nothing to judge."""
        if baseline is None or candidate is None or not candidate.representative:
            return None
        found = judge(baseline, candidate, noise=self._floor(device))
        return {
            "text": format_change(found.change),
            "word": found.verdict,
            "colour": _COLOURS.get(found.verdict, "same"),
            "interval": _interval_text(found),
            "reason": found.reason,
            "against": against,
            **({} if candidate.unit == "bytes" else _speed_up(found, candidate)),
        }

    def _floor(self, device: str) -> NoiseFloor | None:
        if device not in self._floors:
            self._floors[device] = self._load_floor(device)
        return self._floors[device]

    def _load_floor(self, device: str) -> NoiseFloor | None:
        runs = self._runs.get(device, [])
        newest = max((run.measured_at for run in runs), default=None)
        if newest is None:
            return self._catalogue.noise_floor(device, self._metric, None)
        judged = [run for run in runs if newest - run.measured_at < _ONE_NIGHT]
        first = min(judged, key=lambda run: run.measured_at)
        return self._catalogue.noise_floor(device, self._metric, first)


def _interval_text(found: Judgement) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{format_change(found.low)} … {format_change(found.high)}"


def _speed_up(found: Judgement, candidate: Metric) -> View:
    """The same change as a speed-up: baseline ÷ candidate for times, the inverse for rates."""
    if found.change is None:
        return {}
    ratios = [
        1 + change if candidate.higher_is_better else 1 / (1 + change)
        for change in (found.change, found.low, found.high)
        if change is not None
    ]
    ends = [format_ratio(end) for end in sorted(ratios[1:])]
    return {"speed_up": format_ratio(ratios[0]), "speed_up_interval": " … ".join(ends)}
