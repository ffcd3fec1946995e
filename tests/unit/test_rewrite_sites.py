"""A rewrite that breaks at some modules is left out there, and stays at the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from etprof.optimize.search import Search
from etprof.run.program import AppliedRewrite
from tests.unit.test_optimize_search import decisions, program

if TYPE_CHECKING:
    from etprof.run.optimization import Trial


class Sites:
    """Modules of rewrites, and which of them a search has excluded."""

    def __init__(self, modules: dict[str, str], breaking: set[str]) -> None:
        self.modules = {name: paths.split() for name, paths in modules.items()}
        self.breaking, self.excluded = breaking, dict[str, tuple[str, ...]]()
        self.trials = 0

    def applied(self, name: str) -> list[str]:
        return [path for path in self.modules[name] if path not in self.excluded.get(name, ())]

    def make(self, names: tuple[str, ...]) -> Trial:
        self.trials += 1
        where = {f"{name} {path}" for name in names for path in self.applied(name)}
        done = tuple(
            AppliedRewrite(name=name, operators=len(self.applied(name)))
            for name in names
            if self.applied(name)
        )
        problem = "cannot load" if where & self.breaking else None
        return program(names, outside=99 - len(where), applied=done, problem=problem)

    def exclude(self, name: str, paths: Sequence[str]) -> None:
        self.excluded[name] = tuple(paths)

    def search(self, *, trials: int = 99) -> tuple[Search, Trial]:
        found = Search(
            list(self.modules), self.make, 2.0, lambda: self.trials < trials,
            find_modules=lambda _, name: self.applied(name), exclude=self.exclude,
        )  # fmt: skip
        return found, found.run()[1]


BLOCKS = " ".join(f"block{number}" for number in range(16))


@pytest.mark.parametrize("breaking", [["block0"], ["block15"], ["block3", "block4", "block11"]])
def test_modules_where_a_rewrite_breaks_are_left_as_they_are(breaking: list[str]) -> None:
    """L3-2: the whole rewrite was left out, with what it gained in all the others."""
    sites = Sites({"a": "stem", "b": BLOCKS, "c": "head"}, {f"b {path}" for path in breaking})
    found, best = sites.search()
    assert best.rewrites == ("a", "b", "c")
    assert sites.excluded == {"b": tuple(breaking)}
    assert decisions(found)["a"]
    assert decisions(found)["b"]
    (left_out,) = [step for step in found.steps if not step.kept]
    assert set(left_out.rewrite.removeprefix("b in ").replace(" and", ",").split(", ")) == {
        *breaking
    }
    assert left_out.why == "there cannot load"
    # Four halves of sixteen for each, the program with all but them, and what any search has.
    assert sites.trials <= 5 * len(breaking) + 8


@pytest.mark.parametrize(
    ("modules", "breaking"),
    [
        (BLOCKS, BLOCKS.split()[:4]),  # more than three are no exceptions
        ("block0 block1", ["block0", "block1"]),  # it changes nothing then
        ("block0", ["block0"]),
        (f" {BLOCKS}", [""]),  # the model's own operators have no path to name
    ],
)
def test_a_rewrite_that_breaks_where_nobody_can_say_is_left_out_whole(
    modules: str, breaking: list[str]
) -> None:
    sites = Sites({"a": "stem", "b": "", "c": "head"}, {f"b {path}" for path in breaking})
    sites.modules["b"] = modules.split(" ")
    found, best = sites.search()
    assert best.rewrites == ("a", "c")
    assert decisions(found)["b"] is False
    # What was tried for it leaves nothing behind.
    assert not any(sites.excluded.values())


def test_a_budget_that_ends_among_modules_leaves_the_rewrite_out() -> None:
    sites = Sites({"a": "stem", "b": BLOCKS}, {"b block7"})
    found, best = sites.search(trials=5)
    assert (best.rewrites, found.is_complete) == (("a",), False)
