"""Rewrites that help or hurt only together, against every combination of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from etprof.optimize.combinations import MOST_PROPOSALS, propose_combination
from etprof.optimize.search import Search
from etprof.run.optimization import Trial
from tests.unit.test_optimize_search import program

Make = Callable[[tuple[str, ...]], Trial]


def made_of(
    alone: dict[str, int], pairs: dict[tuple[str, str], int], breaking: tuple[set[str], ...] = ()
) -> Make:
    """Programs from which each rewrite, and each pair of them, takes so many operators."""

    def make(names: tuple[str, ...]) -> Trial:
        gain = sum(alone[name] for name in names)
        gain += sum(change for pair, change in pairs.items() if {*pair} <= {*names})
        is_broken = any(broken <= {*names} for broken in breaking)
        return program(names, outside=60 - gain, passed=not is_broken)

    return make


def search(make: Make, names: tuple[str, ...], *, most: int = 999) -> tuple[Search, Trial, int]:
    """Returns the search, its result, and the number of its exports."""
    exported: dict[tuple[str, ...], Trial] = {}

    def try_out(asked: tuple[str, ...]) -> Trial:
        return exported.setdefault(asked, make(asked))

    result = Search(names, try_out, 2.0, lambda: len(exported) < most)
    return result, result.run()[1], len(exported)


def best_of_all(make: Make, names: tuple[str, ...]) -> int:
    chosen = itertools.chain.from_iterable(
        itertools.combinations(names, count) for count in range(len(names) + 1)
    )
    return min(trial.outside for trial in map(make, chosen) if trial.passed)


def test_of_two_that_hurt_together_the_one_that_is_worth_more_stays() -> None:
    """Without either the program is better, so the first in order was taken out."""
    found, best, exports = search(
        made_of({"good": 5, "poor": 1, "other": 2}, {("good", "poor"): -7}),
        ("good", "poor", "other"),
    )
    assert best.rewrites == ("good", "other")
    assert found.is_complete
    assert exports == 8  # every combination
    decided = {step.rewrite: (step.kept, step.why) for step in found.steps}
    why = "with good and without poor the program is better"
    assert (decided["good"], decided["poor"]) == ((True, why), (False, why))
    assert decided["other"][0]


def test_one_that_hurts_beside_another_that_is_left_out_later_comes_back() -> None:
    make = made_of({"first": 2, "second": 0, "third": 4}, {("first", "second"): -3})
    _, best, _ = search(make, ("first", "second", "third"))
    assert best.rewrites == ("first", "third")


def test_where_nothing_hurts_there_is_no_further_export() -> None:
    """A trial with all of them, one without each."""
    make = made_of(dict.fromkeys("abcd", 1), {("a", "b"): 3})
    _, best, exports = search(make, tuple("abcd"))
    assert (best.rewrites, exports) == (tuple("abcd"), 6)


def test_a_budget_ends_the_search_with_what_is_proven() -> None:
    make = made_of({"good": 5, "poor": 1}, {("good", "poor"): -7})
    found, best, exports = search(make, ("good", "poor"), most=4)
    assert exports <= 4
    assert best.passed
    assert best.outside <= 59
    assert best.outside == best_of_all(make, ("good", "poor")) or not found.is_complete


def test_what_contains_a_combination_that_breaks_is_not_tried() -> None:
    """Of two that break together, and a third that hurts, the best pair is found."""
    names = ("a", "b", "c", "d")
    breaking = ({"a", "b"},)
    make = made_of({"a": 1, "b": 4, "c": 3, "d": 2}, {("b", "c"): -6}, breaking)
    tried: list[tuple[str, ...]] = []

    def note(asked: tuple[str, ...]) -> Trial:
        tried.append(asked)
        return make(asked)

    _, best, _ = search(note, names)
    assert best.outside == best_of_all(make, names)
    # All four, and the two when they were found by halves.
    assert {asked for asked in tried if {"a", "b"} <= {*asked}} == {names, ("a", "b")}


def only_beside(make: Make, idle: str, partner: str) -> Make:
    """Programs of `make` in which one rewrite finds something to change beside another alone."""

    def make_idle(names: tuple[str, ...]) -> Trial:
        trial = make(names)
        if partner in names:
            return trial
        applied = tuple(rewrite for rewrite in trial.applied if rewrite.name != idle)
        return trial.model_copy(update={"applied": applied})

    return make_idle


@pytest.mark.parametrize("more", [(), ("e", "f")])
def test_what_finds_nothing_beside_some_is_not_proposed_for_ever(more: tuple[str, ...]) -> None:
    """As casts do that another rewrite makes. The same program was proposed again and again."""
    names = ("good", "poor", "casts", "maker", *more)
    alone = {"good": 5, "poor": 1, "casts": 0, "maker": 1, **dict.fromkeys(more, 1)}
    pairs = {("good", "poor"): -7, ("casts", "maker"): 2}
    make = only_beside(made_of(alone, pairs), "casts", "maker")
    asked: list[tuple[str, ...]] = []

    def note(combination: tuple[str, ...]) -> Trial:
        asked.append(combination)
        assert len(asked) < 60
        return make(combination)

    best = Search(names, note, 2.0, lambda: True).run()[1]
    assert best.outside == best_of_all(make, names)
    decisive = [combination for combination in asked if asked.count(combination) > 1]
    assert not set(decisive[1:]) - set(asked[: len(names) + 2])


def test_a_program_that_fails_forbids_only_what_changes_it() -> None:
    """One that finds nothing to change in a program that fails does not excuse the others."""
    make = only_beside(made_of(dict.fromkeys("abc", 1), {}, ({"a", "b"},)), "c", "none")
    sound = [make(names) for names in ((), ("a",), ("b",))]
    failed = [make(("a", "b", "c"))]
    assert propose_combination(("a", "b", "c"), sound[0], sound[1], sound, failed) is not None
    every = [make(names) for names in (("a", "c"), ("b", "c"), ("c",))]
    proposal = propose_combination(("a", "b", "c"), sound[0], sound[1], sound + every, failed)
    assert proposal is None


def test_modules_that_are_left_alone_later_forget_what_failed() -> None:
    """Programs that failed before a rewrite was narrowed say nothing of those after it."""
    names = tuple("abcdefgh")
    excluded: dict[str, tuple[str, ...]] = {}
    alone = {**dict.fromkeys(names, 1), "e": 9, "f": 3}
    plain = made_of(alone, {("e", "f"): -15})

    def try_out(asked: tuple[str, ...]) -> Trial:
        trial = plain(asked)
        is_broken = "b" in asked and "m" not in excluded.get("b", ())
        return trial.model_copy(update={"passed": not is_broken})

    def exclude(name: str, modules: Sequence[str]) -> None:
        excluded[name] = tuple(modules)

    found = Search(
        names, try_out, 2.0, lambda: True, find_modules=lambda *_: ("m", "n"), exclude=exclude
    )
    _, best = found.run()
    assert best.rewrites == tuple("abcdegh")
    assert best.outside == 60 - 6 - 9


def test_losers_are_discarded_and_the_number_of_proposals_has_an_end() -> None:
    names, make = random_world(3, 12)
    gone: list[tuple[str, ...]] = []
    exports: list[tuple[str, ...]] = []

    def note(asked: tuple[str, ...]) -> Trial:
        exports.append(asked)
        return make(asked)

    found = Search(
        names, note, 2.0, lambda: True, discard=lambda trial: gone.append(trial.rewrites)
    )
    _, best = found.run()
    assert best.rewrites not in gone
    proposed = [trial for trial in exports if exports.index(trial) >= len(exports) - MOST_PROPOSALS]
    kept = [asked for asked in {*proposed} - {*gone} if asked not in {best.rewrites, ()}]
    assert kept == []


def random_world(seed: int, count: int) -> tuple[tuple[str, ...], Make]:
    """Of the pairs, a tenth help together, a seventh hurt together, one in thirty breaks the outputs."""
    random = np.random.default_rng(seed)
    names = tuple(f"r{number}" for number in range(count))
    alone = dict(zip(names, random.choice([-2, -1, 0, 0, 1, 2, 3], count).tolist(), strict=True))
    pairs: dict[tuple[str, str], int] = {}
    breaking: list[set[str]] = []
    for pair in itertools.combinations(names, 2):
        kind, size = random.random(), int(random.integers(2, 6))
        if kind < 0.25:
            pairs[pair] = size if kind < 0.1 else -size
        elif kind < 0.28:
            breaking.append({*pair})
    return names, made_of(alone, pairs, tuple(breaking))


def test_nine_of_ten_random_sets_end_at_the_best_of_all_combinations() -> None:
    """Seven rewrites: 292 of 300 with a median of 25 exports; one by one 178 with 9."""
    worlds = [random_world(seed, 7) for seed in range(60)]
    results = [(search(make, names), best_of_all(make, names)) for names, make in worlds]
    optimal = sum(best.outside == least for (_, best, _), least in results)
    exports = [count for (_, _, count), _ in results]
    assert optimal >= 56
    assert np.median(exports) <= 27
    assert max(exports) < 64


class OneByOne(Search):
    """A search that tries nothing again."""

    def _combine(self, best: Trial, baseline: Trial) -> Trial:
        del baseline
        return best


@pytest.mark.parametrize("seed", range(3))
def test_of_more_than_twelve_rewrites_no_more_exports_are_made(seed: int) -> None:
    """Nor is the result worse than what taking them out one by one finds."""
    names, make = random_world(seed, 14)
    _, best, exports = search(make, names)
    one_by_one = OneByOne(names, make, 2.0, lambda: True)
    assert best.passed
    assert best.outside <= one_by_one.run()[1].outside
    assert exports < 120
