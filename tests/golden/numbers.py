"""What the statistics make of known series, to seven digits.

That they are right is held by tests/unit/test_statistics_by_formula.py and its neighbours, which
compute them otherwise; this file keeps all of them, and those of awkward series, from changing.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from etprof.dashboard import chart
from etprof.run.kernel_trace import match_works
from etprof.statistics import (
    calibration,
    change_points,
    effect,
    launch_ratio,
    likeness,
    noise,
    order_statistics,
    runs,
    summary,
    two_samples,
    warmup,
)
from etprof.statistics.two_samples import Spread

NUMBERS_FILE: Final = "numbers.txt"
_HELD: Final = 12
"""Of longer lists, the first, the last and the sum."""
_PRIOR: Final = Spread(0.02, 4.0)


def _noisy(
    level: float, count: int, *, spread: float = 0.02, seed: int = 0, step: float = 1.0
) -> tuple[float, ...]:
    """Values around a level, that of the second half `step` times as high."""
    source = random.Random(seed)  # noqa: S311 - noise
    return tuple(
        round(level * (step if 2 * i >= count else 1.0) * (1 + spread * source.gauss(0, 1)), 3)
        for i in range(count)
    )


_DRIFTING: Final = tuple(round(100 * 1.01**i + 0.2 * (i % 3), 3) for i in range(16))
_SERIES: Final[Mapping[str, Sequence[float]]] = {
    "one": (100.0,),
    "two": (100.0, 104.0),
    "three": (100.0, 103.0, 99.0),
    "equal": (100.0,) * 8,
    "five": (101.0, 99.0, 100.0, 104.0, 98.5),
    "six": (101.0, 99.0, 100.0, 104.0, 98.5, 97.25),
    "ties": (100.0, 101.0, 100.0, 102.0, 101.0, 100.0, 99.0, 102.0),
    "ten": _noisy(100, 10, seed=1),
    "twenty": _noisy(100, 20, seed=2),
    "step": _noisy(100, 24, seed=3, step=1.2),
    "fall": _noisy(100, 13, seed=4, step=0.7),
    "small step": _noisy(100, 30, spread=0.005, seed=5, step=1.021),
    "no step": _noisy(100, 30, spread=0.001, seed=5, step=1.019),
    "drift": _DRIFTING,
    "outlier": (*_noisy(100, 9, seed=6), 180.0, *_noisy(100, 6, seed=7)),
    "states": tuple(100.0 + 10 * (i // 4 % 2) + 0.1 * (i % 4) for i in range(24)),
    "long": (*_noisy(100, 120, seed=8), *_noisy(110, 130, seed=9)),
    "stairs": tuple(
        value for i, level in enumerate((100, 112, 107, 95)) for value in _noisy(level, 7, seed=i)
    ),
}
_PAIRS: Final = (
    ("two", "two"), ("three", "three"), ("five", "ten"), ("six", "six"), ("ten", "twenty"),
    ("twenty", "step"), ("ties", "equal"), ("ten", "outlier"), ("states", "step"), ("drift", "drift"),
)  # fmt: skip


def _match_works(series: Sequence[float]) -> list[int]:
    """Three inferences of works, every third operator of which is made of two."""
    works = np.array([[round(v * (1 + 0.01 * i)) for v in series] for i in range(3)])
    parts, begin = list[int](), 0
    while begin < len(series):
        parts.append(2 if len(parts) % 3 == 1 and begin + 2 <= len(series) else 1)
        begin += parts[-1]
    ends = np.cumsum(parts)
    sums = np.add.reduceat(works, [0, *ends[:-1]], axis=1)
    return match_works(works, sums, [count > 1 or i % 2 == 0 for i, count in enumerate(parts)])


_BY_SERIES: Final[Mapping[str, Callable[[Sequence[float]], Any]]] = {
    "summarise": summary.summarise,
    "two_states": summary.two_states,
    "trimmed_mean": summary.trimmed_mean,
    "robust_spread": lambda s: summary.robust_spread(np.asarray(s) - np.mean(s)),
    "noise_of_series": lambda s: summary.noise_of_series(np.log([*s, s[0]])),
    "summarise_blocks": lambda s: summary.summarise_blocks([(v, v + 1, 1.1 * v) for v in s]),
    "median_interval": order_statistics.median_interval,
    "hodges_lehmann": lambda s: effect.hodges_lehmann(np.log(s) - np.log(s[0])),
    "hodges_lehmann_interval": lambda s: effect.hodges_lehmann_interval(np.log(s)),
    "signed_rank_p": lambda s: effect.signed_rank_p(np.log(s) - np.log(101.0)),
    "mean_interval": two_samples.mean_interval,
    "mean_interval with prior": lambda s: two_samples.mean_interval(s, prior=_PRIOR),
    "mean_p_value": lambda s: two_samples.mean_p_value([v - 100.0 for v in s]),
    "spread_of_neighbours": lambda s: runs.spread_of_neighbours(_logs(s)),
    "find_drift": lambda s: runs.find_drift(_logs(s)),
    "find_drift with prior": lambda s: runs.find_drift(_logs(s), _PRIOR),
    "standing_level up": lambda s: runs.standing_level(_logs(s), worse=1, threshold=0.02),
    "standing_level down": lambda s: runs.standing_level(
        _logs(s), worse=-1, threshold=0.01, prior=_PRIOR
    ),
    "standing_level with marks": lambda s: runs.standing_level(
        _logs(s), worse=1, threshold=0.02,
        marks=runs.RunMarks(accepted=(12,), alarmed=(1, 13), barred=(3,)),
    ),
    "departure": lambda s: runs.departure(_logs(s), np.log(105.0), _PRIOR),
    "find_change_points": change_points.find_change_points,
    "find_change_points of 10 %": lambda s: change_points.find_change_points(
        s, minimum_change=0.1
    ),
    "step_in_doubt": change_points.step_in_doubt,
    "settled_after": lambda s: warmup.settled_after([round(1000 * v) for v in s]),
    "settling": lambda s: warmup.settled_after([round(3e6 / v * (1 + 3 / (i + 1)) )
                                                for i, v in enumerate(s)]),
    "is_settled": lambda s: warmup.is_settled([round(1000 * v) for v in s]),
    "launch_noise": lambda s: noise.launch_noise([[round(1e3 * v), round(1.01e3 * v)] for v in s]),
    "choose_points of 5": lambda s: chart.choose_points(s, 5),
    "choose_points of 9": lambda s: chart.choose_points(s, 9),
    "sparkline": chart.sparkline,
    "match_works": _match_works,
    "holm": lambda s: two_samples.holm([1 / v for v in s]),
    "benjamini_hochberg": lambda s: two_samples.benjamini_hochberg([1 / v for v in s]),
}  # fmt: skip
_BY_PAIR: Final[Mapping[str, Callable[[Sequence[float], Sequence[float]], Any]]] = {
    "estimate_effect": lambda a, b: effect.estimate_effect(a[: len(b)], b[: len(a)]),
    "estimate_effect at half": lambda a, b: effect.estimate_effect(
        a[: len(b)], [v / 1.5 for v in b[: len(a)]], margin=0.5
    ),
    "effect_of_runs": lambda a, b: effect.effect_of_runs([a, a[::-1], a], [b, b, b[1:]]),
    "effect_of_runs with prior": lambda a, b: effect.effect_of_runs([a], [b], prior=_PRIOR),
    "ratio_of_launches": lambda a, b: launch_ratio.ratio_of_launches(a[: len(b)], b[: len(a)]),
    "shift_interval": lambda a, b: two_samples.shift_interval(np.log(a), np.log(b)),
    "difference_of_groups": two_samples.difference_of_groups,
    "difference of groups, 90 %": lambda a, b: two_samples.difference_of_groups(
        a, b, prior=Spread(2.0, 4.0), confidence=0.9
    ),
    "pooled_spread": lambda a, b: two_samples.pooled_spread([_logs(a), _logs(b)]),
    "calibrate": lambda a, b: calibration.calibrate(
        [(a[: len(b)], b[: len(a)]), (b[: len(a)], a[: len(b)])], pairs=4
    ),
    "fit_prior": lambda a, b: runs.fit_prior(
        [
            Spread(float(np.std(a)) / 100, 3),
            Spread(float(np.std(b)) / 100 + 0.01, 5),
            Spread(0.05, 8),
        ]
    ),
    "compare": lambda a, b: likeness.compare(
        0, _matrix(a, b), _matrix(a, tuple(v + 0.5 * (i % 2) for i, v in enumerate(b))), 2
    ),
    "compare whole": lambda a, b: likeness.compare(
        1, _matrix(a, b), _matrix(b, a), 2, least_db=20.0, kind="label"
    ),
    "degeneracy": lambda a, b: likeness.find_degeneracy(_matrix(a, b) - 100.0),
    "snr": lambda a, b: likeness.snr_db(_matrix(a, b), _matrix(a, b) - _matrix(b, a)),
}


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _matrix(a: Sequence[float], b: Sequence[float]) -> Any:  # noqa: ANN401 - an array
    """Two columns, as long as the shorter one."""
    count = min(len(a), len(b))
    return np.column_stack((a[:count], b[:count]))


def describe_numbers() -> str:
    """A line for each function of each series and pair, with what it returns or raises."""
    lines = [f"{name}: {_words(values)}" for name, values in _SERIES.items()]
    for name, function in _BY_SERIES.items():
        lines.append(f"# {name}")
        lines += [f"{label}: {_outcome(function, series)}" for label, series in _SERIES.items()]
    for name, of_pair in _BY_PAIR.items():
        lines.append(f"# {name}")
        lines += [
            f"{first}, {second}: {_outcome(of_pair, _SERIES[first], _SERIES[second])}"
            for first, second in _PAIRS
        ]
    return "\n".join(lines) + "\n"


def _outcome(function: Callable[..., Any], *values: Sequence[float]) -> str:
    try:
        return _words(function(*values))
    except ValueError as error:
        return f"ValueError: {error}"


def _words(value: object) -> str:
    """Numbers to seven digits, records by their fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return "; ".join(_fields(value))
    if isinstance(value, bool | np.bool_) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, int | float | np.number):
        return f"{float(value):.7g}"
    if isinstance(value, Sequence | np.ndarray):
        words = list(map(_words, value))
        if len(words) > _HELD:
            words = [
                *words[:3],
                f"… {len(words)} that add up to {np.sum(value):.7g} …",
                *words[-3:],
            ]
        return "[" + ", ".join(words) + "]"
    return str(value)


def _fields(record: Any) -> Iterator[str]:  # noqa: ANN401 - any dataclass
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        words = _words(value)
        yield (
            f"{field.name} ({words})"
            if dataclasses.is_dataclass(value)
            else f"{field.name} {words}"
        )
