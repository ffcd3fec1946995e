"""Which combinations to try: of rewrites, and of layers that stay in float32."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.run.optimization import Trial, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

_EXACT: Final = 4
"""Rewrites of which any combination is worth a trial: 16 exports, which no model would save many of."""
_MOST_REWRITES: Final = 12
"""Of which every combination is thought of: 4 096, in less than a second."""
MOST_PROPOSALS: Final = 8
"""Exports that a search makes of combinations that the model promises."""
_MOST_CHANGES: Final = 3
"""Of the best combination, where there are more rewrites than that."""
_OPTIMISM: Final = 3.0
"""Standard deviations by which a combination may be better than is expected of it: with more of them the
best of all is found more often, with more exports. tests/unit/test_combinations.py counts both."""
_NUGGET: Final = 1e-6
"""On the diagonal, so that linearly dependent combinations, and the baseline's zeros, can be solved for."""


def propose_combination(
    names: tuple[str, ...],
    baseline: Trial,
    best: Trial,
    sound: Sequence[Trial],
    failed: Sequence[Trial],
) -> tuple[str, ...] | None:
    """Returns the combination of `names` that may be the best of all; None where none may beat `best`.

    `sound` are the programs whose outputs hold, the baseline among them, and `failed` the others:
    what contains a combination that fails is expected to fail.
    """
    tried = {frozenset(trial.without_idle().rewrites): trial for trial in sound}
    # What finds nothing to change beside these may find it beside others: both names are taken.
    asked = {frozenset(trial.rewrites) for trial in sound} | tried.keys()
    broken = [
        frozenset((trial.without_idle() if trial.applied else trial).rewrites) for trial in failed
    ]
    candidates = [
        combination
        for combination in _combine(names, best)
        if frozenset(combination) not in asked
        and not any(spoiled <= {*combination} for spoiled in broken)
    ]
    if not candidates:
        return None
    origin = _figures(baseline, baseline)
    changes = np.array([_figures(trial, baseline) for trial in tried.values()]) - origin
    expected, deviations = _expect_figures(
        _members(list(map(tuple, tried)), names), changes, _members(candidates, names)
    )
    least = np.maximum(origin + expected - _OPTIMISM * deviations, 0).round().astype(int)
    champion = best if len(names) > _EXACT else None
    for combination, figures in zip(candidates, least.tolist(), strict=True):
        outlook = _outlook(combination, figures, baseline)
        if champion is None or compare(outlook, champion, baseline.macs) == "better":
            champion = outlook
    return None if champion is None or champion is best else champion.rewrites


def _combine(names: tuple[str, ...], best: Trial) -> Iterator[tuple[str, ...]]:
    """Yields the combinations of `names` but that of `best`, each in their order."""
    most = len(names) if len(names) <= _MOST_REWRITES else _MOST_CHANGES
    for count in range(1, most + 1):
        for changed in itertools.combinations(names, count):
            chosen = {*best.rewrites} ^ {*changed}
            yield tuple(name for name in names if name in chosen)


def _figures(trial: Trial, baseline: Trial) -> tuple[float, ...]:
    """Returns what is the better the less it is, in the order of `_outlook`; the baseline's if unknown."""
    shares = trial.sme2_share(baseline.macs), baseline.sme2_share(baseline.macs), 1.0
    share = next(share for share in shares if share is not None)
    transposes = next(
        (count for count in (trial.transposes, baseline.transposes) if count is not None), 0
    )
    outside = trial.outside, trial.delegate_calls, transposes
    return ((1 - share) * baseline.macs, *outside, trial.size_bytes)


def _outlook(names: tuple[str, ...], figures: Sequence[int], baseline: Trial) -> Trial:
    """Returns a program of these figures; those that the baseline lacks are unknown."""
    without, outside, calls, transposes, size = figures
    return Trial(
        rewrites=names,
        macs=baseline.macs,
        macs_without_sme2=None if baseline.sme2_share(baseline.macs) is None else without,
        outside=outside,
        delegate_calls=calls,
        transposes=None if baseline.transposes is None else transposes,
        size_bytes=size,
    )


def _expect_figures(
    tried: NDArray[np.bool_], changes: NDArray[np.float64], candidates: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns how much each figure changes in each candidate, and the standard deviation of that.

    A combination is expected to change a figure by the sum of what its members, and each pair of
    them, change it by: the model of the second order of Baptista and Poloczek 2018, "Bayesian
    Optimization of Combinatorial Structures", here with a normal prior of one variance.

    Args:
        tried: Bool of shape (combinations, members), who is in each combination that was tried.
        changes: Float64 of shape (combinations, figures), against the combination of nobody.
        candidates: Bool of shape (candidates, members).

    Returns:
        Two arrays, float64 of shape (candidates, figures), in the figures' units.
    """
    features, candidate_features = _features(tried), _features(candidates)
    precision = np.linalg.inv(features @ features.T + _NUGGET * np.eye(len(features)))
    covariances = candidate_features @ features.T
    weights = covariances @ precision
    variances = (candidate_features**2).sum(1) - (weights * covariances).sum(1)
    # How large an effect is, from those that were seen.
    scales = np.sqrt(np.einsum("if,ij,jf->f", changes, precision, changes) / len(features))
    deviations = np.sqrt(np.maximum(variances, 0))[:, None] * scales
    return weights @ changes, deviations


def _members(combinations: Sequence[Sequence[str]], names: Sequence[str]) -> NDArray[np.bool_]:
    """Returns who of `names` is in each combination: bool of shape (combinations, names)."""
    return np.array([[name in combination for name in names] for combination in combinations], bool)


def _features(members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns 1 for each member and pair of members: float64 of shape (combinations, members + pairs)."""
    single = members.astype(np.float64)
    first, second = np.triu_indices(members.shape[1], 1)
    return np.hstack([single, single[:, first] * single[:, second]])


def choose_layers(
    order: Sequence[str],
    is_sound: Callable[[tuple[str, ...]], bool],
    is_time_left: Callable[[], bool],
) -> tuple[str, ...]:
    """Returns the layers that have to stay in float32 for the outputs to hold; none where all fail.

    `order` begins with the layer that spoils most for its work. Twice as many are tried until they
    suffice, then fewer by halves, and then each is taken out again, the one that spoils least first.
    """
    too_few, count = 0, 1
    while not is_sound(tuple(order[:count])):
        if count >= len(order) or not is_time_left():
            return ()
        too_few, count = count, min(2 * count, len(order))
    while count - too_few > 1 and is_time_left():
        middle = (too_few + count) // 2
        if is_sound(tuple(order[:middle])):
            count = middle
        else:
            too_few = middle
    layers = tuple(order[:count])
    for layer in reversed(layers[:-1]):
        without = tuple(path for path in layers if path != layer)
        if is_time_left() and is_sound(without):
            layers = without
    return layers
