"""The search keeps what helps, whatever the rewrites do: planted ones of every kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etprof.base.errors import ExportError
from etprof.export.request import ExportedFiles, ExportRequest
from etprof.optimize.combinations import choose_layers
from etprof.optimize.optimizing import Optimizer, describe_choice, describe_result
from etprof.optimize.search import Search
from etprof.run.delegation import DelegationReport, MethodReport, MethodSummary
from etprof.run.optimization import Gain, KernelCounts, Trial, compare, describe_trial
from etprof.run.program import (
    AppliedRewrite,
    CheckedOutput,
    ExportCheck,
    ExportManifest,
    MethodFiles,
)
from etprof.statistics.effect import estimate_effect

MACS = 1000


def program(names: tuple[str, ...], **figures: object) -> Trial:
    known: dict[str, object] = {
        "rewrites": names,
        "applied": tuple(AppliedRewrite(name=each, operators=1) for each in names),
        "macs": MACS, "macs_without_sme2": 500, "delegate_calls": 3, "outside": 9,
        "size_bytes": 10_000, "snr_db": 60.0, "passed": True,
    }  # fmt: skip
    return Trial(**{**known, **figures})


def search(
    names: str, make: Callable[[tuple[str, ...]], Trial], *, trials: int = 99
) -> tuple[Search, Trial, Trial]:
    tried: dict[tuple[str, ...], Trial] = {}

    def try_out(asked: tuple[str, ...]) -> Trial:
        return tried.setdefault(asked, make(asked))

    found = Search(names.split(), try_out, 2.0, lambda: len(tried) < trials)
    baseline, best = found.run()
    return found, baseline, best


def decisions(found: Search) -> dict[str, bool]:
    return {each.rewrite: each.kept for each in found.steps}


def test_one_that_helps_only_with_another_is_found_with_it() -> None:
    """No single step is monotone: `a` alone makes it worse, `b` alone changes nothing."""

    def make(names: tuple[str, ...]) -> Trial:
        outside = 9 + ("a" in names) - 6 * ({"a", "b"} <= set(names))
        return program(names, outside=outside)

    found, _, best = search("a b c", make)
    assert best.rewrites == ("a", "b")
    assert decisions(found) == {"a": True, "b": True, "c": False}


def test_one_that_takes_transposes_out_of_the_delegate_stays() -> None:
    """It was "it changes no figure": nobody counted them."""

    def make(names: tuple[str, ...]) -> Trial:
        return program(names, transposes=5 - 2 * ("turned" in names))

    found, _, best = search("idle turned", make)
    assert best.rewrites == ("turned",)
    assert decisions(found) == {"idle": False, "turned": True}
    # They weigh less than calls; a record of an earlier search, which has none, is compared without.
    assert compare(program((), transposes=9, delegate_calls=2), make(()), MACS) == "better"
    assert compare(program(()), make(("turned",)), MACS) == "same"


def test_one_that_breaks_outputs_is_rejected_by_name() -> None:
    def make(names: tuple[str, ...]) -> Trial:
        return program(names, outside=9 - len(names), passed="bad" not in names)

    found, _, best = search("a bad b", make)
    assert best.rewrites == ("a", "b")
    (rejected,) = [each for each in found.steps if not each.kept]
    assert (rejected.rewrite, "outputs" in rejected.why) == ("bad", True)


def test_two_that_break_outputs_are_rejected_too() -> None:
    def make(names: tuple[str, ...]) -> Trial:
        is_bad = bool({"x", "y"} & set(names))
        return program(names, outside=9 - len(names), passed=not is_bad)

    found, _, best = search("x a y b", make)
    assert best.rewrites == ("a", "b")
    assert {name for name, kept in decisions(found).items() if not kept} == {"x", "y"}


def test_one_among_many_is_found_by_halves() -> None:
    """L3-10: each was left out in turn, so that a dozen exports were made to find one."""
    names = "a b c d e f g h i j k l m n"
    tried: list[tuple[str, ...]] = []

    def make(asked: tuple[str, ...]) -> Trial:
        tried.append(asked)
        return program(asked, problem="cannot load" if "c" in asked else None)

    found = Search(names.split(), make, 2.0, lambda: True)
    bundle = found._first_sound(make(()))
    assert bundle is not None
    assert set(bundle.rewrites) == {*names.split()} - {"c"}
    assert [(step.rewrite, step.why) for step in found.steps] == [("c", "with it cannot load")]
    # The program as it is, all together, four halves, and all but the culprit.
    assert len(tried) == 7


def test_two_that_break_only_together_cost_one_of_them() -> None:
    def make(names: tuple[str, ...]) -> Trial:
        is_bad = {"b", "e"} <= set(names)
        return program(names, outside=9 - len(names), passed=not is_bad)

    found, _, best = search("a b c d e f", make)
    assert best.rewrites == ("a", "b", "c", "d", "f")
    assert [name for name, kept in decisions(found).items() if not kept] == ["e"]


def test_what_finds_nothing_to_change_is_no_suspect() -> None:
    def make(names: tuple[str, ...]) -> Trial:
        trial = program(names, passed="bad" not in names, outside=9 - len(names))
        applied = tuple(each for each in trial.applied if each.name != "idle")
        return trial.model_copy(update={"applied": applied})

    tried: list[tuple[str, ...]] = []

    def note(names: tuple[str, ...]) -> Trial:
        tried.append(names)
        return make(names)

    bundle = Search(["idle", "good", "bad"], note, 2.0, lambda: True)._first_sound(make(()))
    assert bundle is not None
    assert bundle.rewrites == ("good",)
    assert tried == [("idle", "good", "bad"), ("good",), ("good",)]


def test_where_the_budget_ends_among_culprits_the_sound_part_is_kept() -> None:
    def make(names: tuple[str, ...]) -> Trial:
        return program(names, outside=9 - len(names), passed="d" not in names)

    found, _, best = search("a b c d", make, trials=3)
    assert best.rewrites == ("a", "b")
    assert not found.is_complete


@pytest.mark.parametrize("seed", range(40))
def test_the_result_is_the_best_of_all_where_rewrites_help_and_break_in_pairs(seed: int) -> None:
    """Against brute force: six rewrites, of which some help alone, some with another, some break."""
    random = np.random.default_rng(seed)
    names = list("abcdef")
    alone = dict(zip(names, random.integers(0, 3, 6), strict=True))
    helping = tuple(random.choice(names, 2, replace=False))

    def make(asked: tuple[str, ...]) -> Trial:
        gain = sum(int(alone[name]) for name in asked) + 3 * ({*helping} <= set(asked))
        return program(asked, outside=30 - gain, passed=not {"a", "f"} <= set(asked))

    _, _, best = search(" ".join(names), make)
    every = [
        make(tuple(name for name, is_in in zip(names, chosen, strict=True) if is_in))
        for chosen in itertools.product([False, True], repeat=6)
    ]
    assert best.outside == min(trial.outside for trial in every if trial.passed)


@pytest.mark.parametrize(("lost_db", "kept"), [(1.9, True), (2.1, False)])
def test_no_more_is_lost_than_the_tolerance(lost_db: float, *, kept: bool) -> None:
    def make(names: tuple[str, ...]) -> Trial:
        return program(names, outside=9 - len(names), snr_db=60 - lost_db * ("a" in names))

    assert ("a" in search("a b", make)[2].rewrites) is kept


def test_a_baseline_whose_outputs_fail_sets_no_mark() -> None:
    """A program of noise may be mended by a rewrite; its own distance is no tolerance."""

    def make(names: tuple[str, ...]) -> Trial:
        return program(names, passed=bool(names), snr_db=60.0 if names else 0.3, outside=8)

    _, baseline, best = search("a", make)
    assert (baseline.passed, best.passed) == (False, True)


def test_a_model_that_is_wrong_with_and_without_rewrites_is_not_searched_for_a_culprit() -> None:
    """It took an export for each rewrite, twice, of a model that only another precision mends."""
    tried: list[tuple[str, ...]] = []

    def make(names: tuple[str, ...]) -> Trial:
        tried.append(names)
        return program(names, passed=False)

    _, baseline, best = search("a b c", make)
    assert best is baseline
    assert tried == [(), ("a", "b", "c")]


def test_work_that_a_rewrite_adds_cannot_raise_the_share() -> None:
    """A thousand more on SME2, and 100 of the original's moved off it: that is worse."""
    before = program(())
    after = program(("a",), macs=2100, macs_without_sme2=600)
    assert compare(after, before, MACS) == "worse"
    assert after.sme2_share(MACS) == pytest.approx(0.4)


def test_what_cannot_be_exported_is_named_with_its_reason() -> None:
    def make(names: tuple[str, ...]) -> Trial:
        if "a" in names:
            return Trial(rewrites=names, problem="lifted_tensor_0 is not a buffer")
        return program(names, outside=9 - len(names))

    found, _, best = search("a b", make)
    assert best.rewrites == ("b",)
    assert [each.why for each in found.steps if not each.kept] == [
        "with it lifted_tensor_0 is not a buffer"
    ]


def test_a_budget_keeps_what_was_proven_so_far() -> None:
    found, _, best = search("a b c", lambda names: program(names, outside=9 - len(names)), trials=3)
    assert not found.is_complete
    assert best.rewrites == ("a", "b", "c")
    assert all("budget" in each.why for each in found.steps[1:])


def test_nothing_that_helps_leaves_the_program_as_it_is() -> None:
    found, baseline, best = search("a b", program)
    assert best is baseline
    assert decisions(found) == {"a": False, "b": False}


def timed(latency: Callable[[Trial], float]) -> Callable[[Trial, Trial], tuple[Gain, ...]]:
    """Times of ten blocks in turns, 0.2 % apart: of the candidate and of the other."""
    jitter = np.random.default_rng(0).normal(0, 0.002, (2, 10))

    def measure(candidate: Trial, other: Trial) -> tuple[Gain, ...]:
        sides = [latency(each) * np.exp(jitter[i]) for i, each in enumerate((other, candidate))]
        effect = estimate_effect(*(side.tolist() for side in sides))
        assert effect.interval is not None
        gain = Gain(
            method="forward", sme="sme2", pairs=10, speed_up=effect.speed_up, run="runs/planted",
            low=effect.interval.low, high=effect.interval.high, verdict=effect.verdict,
        )  # fmt: skip
        return (gain,)

    return measure


def search_by_times(
    names: str,
    latency: Callable[[Trial], float],
    make: Callable[[tuple[str, ...]], Trial] = program,
) -> tuple[Search, Trial]:
    found = Search(names.split(), make, 2.0, lambda: True, measure=timed(latency))
    return found, found.run()[1]


def test_a_gain_of_half_a_per_cent_is_no_difference_and_left_out() -> None:
    """What is told from noise stays, whatever the figures of the export say of the others."""
    factors = {"tenth": 0.9, "trifle": 0.995, "slower": 1.05}

    def latency(trial: Trial) -> float:
        return math.prod(factors[name] for name in trial.rewrites)

    found, best = search_by_times("trifle slower tenth", latency)
    assert best.rewrites == ("tenth",)
    by_name = {each.rewrite: each for each in found.steps}
    verdicts = {name: step.gains[0].verdict for name, step in by_name.items()}
    assert verdicts == {"trifle": "no difference", "slower": "slower", "tenth": "faster"}
    assert (by_name["trifle"].kept, by_name["trifle"].why) == (False, "no gain beyond noise")
    assert [each.verdict for each in found.gains] == ["faster"]


def test_gains_too_small_for_each_that_add_up_are_kept_together() -> None:
    found, best = search_by_times("a b c d", lambda trial: 0.985 ** len(trial.rewrites))
    assert best.rewrites == ("a", "b", "c", "d")
    assert all(each.kept and "no gain alone" in each.why for each in found.steps)


def test_what_is_kept_together_is_all_that_the_program_has() -> None:
    """One that changes no byte by itself was in the program and said to be left out of it."""

    def make(names: tuple[str, ...]) -> Trial:
        return program(names, sha256="plain" if names in {(), ("idle",)} else "-".join(names))

    found, best = search_by_times("a b c idle", lambda trial: 0.985 ** len(trial.rewrites), make)
    assert best.rewrites == ("a", "b", "c", "idle")
    assert decisions(found) == dict.fromkeys(best.rewrites, True)


def test_where_nothing_is_faster_the_program_stays_as_it_is() -> None:
    """However much better every figure of the export is."""

    def make(names: tuple[str, ...]) -> Trial:
        return program(names, outside=9 - len(names), macs_without_sme2=500 - 100 * len(names))

    found, best = search_by_times("a b", lambda _: 1.0, make)
    assert best.rewrites == ()
    assert not any(each.kept for each in found.steps)


def test_programs_of_equal_bytes_are_not_measured() -> None:
    def latency(_: Trial) -> float:
        raise AssertionError

    found, best = search_by_times("a", latency, lambda names: program(names, sha256="same"))
    assert best.rewrites == ()
    assert [each.why for each in found.steps] == ["it changes no figure"]


def test_a_faster_program_whose_outputs_are_wrong_on_the_target_is_left_out() -> None:
    measure = timed(lambda trial: 0.5 ** len(trial.rewrites))

    def wrong(candidate: Trial, other: Trial) -> tuple[Gain, ...]:
        problem = "its outputs are wrong there" if "bad" in candidate.rewrites else None
        return tuple(
            each.model_copy(update={"problem": problem}) for each in measure(candidate, other)
        )

    found = Search(["bad", "good"], program, 2.0, lambda: True, measure=wrong)
    assert found.run()[1].rewrites == ("good",)
    assert "outputs are wrong there" in found.steps[0].why


def test_one_that_breaks_outputs_in_one_sme_mode_is_rejected() -> None:
    """Counted programs are held to the outputs of every mode, not to the export's alone."""

    def make(names: tuple[str, ...]) -> Trial:
        problem = "off: precision is not good enough" if "bad" in names else None
        counted = KernelCounts(sme2_calls=9, macs_on_sme2=500 + len(names), problem=problem)
        return program(names, counted=counted, outside=9 - len(names))

    found, _, best = search("a bad b", make)
    assert best.rewrites == ("a", "b")
    assert decisions(found)["bad"] is False


def test_counted_work_stands_above_predicted_work() -> None:
    counted = program(("a",), counted=KernelCounts(sme2_calls=1, macs_on_sme2=900))
    assert counted.sme2_share(MACS) == pytest.approx(0.9)
    assert compare(counted, program(()), MACS) == "better"


def test_a_point_of_work_is_no_reason_to_leave_operators_outside() -> None:
    """A search chose 9 calls and 52 operators outside over 1 and 5, for 0.96 % of the work."""
    inside = program((), macs_without_sme2=30, outside=5)
    assert compare(inside, program((), macs_without_sme2=21, outside=52), MACS) == "better"
    # Two points are; and where nothing else parts two programs, a fifth of a point is.
    assert compare(inside, program((), macs_without_sme2=9, outside=52), MACS) == "worse"
    assert compare(inside, program((), macs_without_sme2=28, outside=5), MACS) == "worse"


class Planted(Optimizer):
    """A search for whose programs nothing is exported."""

    def _names(self) -> Sequence[str]:
        return ["a", "b", "c"]

    def _left_out(self) -> dict[str, str]:
        return {}

    def _export(self, asked: Trial) -> Trial:
        figures: dict[str, Any] = {"outside": 9 - 3 * len({"a", "b"} & set(asked.rewrites))}
        return program(asked.rewrites, number=asked.number, **figures)

    def _find(self, trial: Trial) -> ExportedFiles:
        return ExportedFiles(Path(",".join(trial.rewrites) or "none"))


def count_trials(tmp_path: Path, count: Callable[[str], KernelCounts]) -> tuple[list[str], Trial]:
    """Returns the programs that were counted, in their order, and the result."""
    asked: list[str] = []

    def counted(path: Path, *_: object) -> KernelCounts:
        asked.append(str(path))
        return count(str(path))

    target = SimpleNamespace(platform="emulated")
    prover: Any = SimpleNamespace(proves_times=False, target=target, count=counted)
    found = Planted(ExportRequest("toy_cnn"), tmp_path, 2.0, None, lambda _: None, prover=prover)
    found.record = found._recall()
    return asked, found._search()[2]


def test_while_counts_are_as_predicted_only_the_ends_of_a_search_are_counted(
    tmp_path: Path,
) -> None:
    """Every trial was counted under emulation, which took most of an hour for mobilenet_v2."""
    asked, best = count_trials(tmp_path, lambda _: KernelCounts(sme2_calls=1, macs_on_sme2=500))
    assert asked == ["none", "a,b,c", "a,b"]
    assert (best.rewrites, best.counted is not None) == (("a", "b"), True)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_where_a_count_differs_every_program_is_counted(tmp_path: Path, *, is_wrong: bool) -> None:
    """Of the result alone: all before it are counted too, and then decided on again."""

    def count(path: str) -> KernelCounts:
        if path != "a,b":
            return KernelCounts(sme2_calls=1, macs_on_sme2=500)
        # In one SME mode it is wrong, or less than predicted is on SME2.
        return KernelCounts(
            sme2_calls=1, macs_on_sme2=400, problem="off: wrong" if is_wrong else None
        )

    asked, best = count_trials(tmp_path, count)
    assert asked[:3] == ["none", "a,b,c", "a,b"]
    # Without `c` the outputs are wrong, or less is on SME2: it stays.
    assert best.rewrites == ("a", "b", "c")
    assert {"b,c", "a,c"} <= set(asked)
    assert len(asked) == len(set(asked))


def choose(order: str, needed: set[str], *, trials: int = 99) -> tuple[str, int]:
    tried: list[str] = []

    def is_sound(layers: tuple[str, ...]) -> bool:
        tried.append("".join(layers))
        return needed <= set(layers)

    return "".join(choose_layers(order, is_sound, lambda: len(tried) < trials)), len(tried)


@pytest.mark.parametrize(("needed", "chosen"), [("a", "a"), ("cf", "cf"), ("abcdefgh", "abcdefgh")])
def test_layers_in_float32_are_no_more_than_are_needed(needed: str, chosen: str) -> None:
    """However they are ranked: each that the outputs hold without is taken out again."""
    assert choose("abcdefgh", set(needed))[0] == chosen


def test_no_layer_is_chosen_where_all_do_not_suffice_or_no_time_is_left() -> None:
    assert choose("abcd", {"z"}) == ("", 3)
    assert choose("abcd", {"d"}, trials=1) == ("", 1)
    # What was found until then is sound, only not the least.
    assert choose("abcdefgh", {"d"}, trials=3) == ("abcd", 3)


names_of = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)


@settings(deadline=None)
@given(names_of, st.dictionaries(st.frozensets(st.sampled_from("abcdef")), st.integers(0, 9)))
def test_the_result_is_never_worse_and_two_searches_decide_the_same(
    names: list[str], effects: dict[frozenset[str], int]
) -> None:
    """I10: whatever bundles do, on any outputs."""

    def make(asked: tuple[str, ...]) -> Trial:
        outside = sum(count for each, count in effects.items() if each <= set(asked))
        return program(asked, outside=outside, passed=outside % 5 != 4 or not asked)

    first, baseline, best = search(" ".join(names), make)
    assert best is baseline or compare(best, baseline, MACS) == "better"
    assert first.objection(best, baseline) is None or best is baseline
    again, _, second = search(" ".join(names), make)
    assert (second, again.steps) == (best, first.steps)
    # What is kept is needed: the program without it is worse, or may not be used.
    for step in (each for each in first.steps if each.kept):
        assert step.without is not None
        is_refused = first.objection(step.without, baseline) is not None
        assert is_refused or step.rewrite not in step.without.rewrites


def test_a_trial_is_what_its_export_says() -> None:
    """The totals are of all methods, and the outputs have to pass in each."""
    manifest, report = exported(passed=(True, True)), reported()
    trial = describe_trial(program(("a",)), manifest, report, 77)
    assert trial.passed
    assert (trial.macs, trial.macs_without_sme2) == (300, 100)
    assert (trial.delegate_calls, trial.outside, trial.size_bytes) == (3, 7, 77)
    assert trial.snr_db == 41.0
    for passed in ((True, False), (False, False), (True, None), ()):
        assert not describe_trial(program(("a",)), exported(passed=passed), report, 77).passed


def exported(*, passed: tuple[bool | None, ...]) -> ExportManifest:
    ratios = ((60.0, None), (41.0, 50.0))
    return ExportManifest(
        model="m",
        backend="xnnpack",
        precision="fp16",
        methods={
            f"m{n}": MethodFiles(
                check=ExportCheck(
                    passed=each,
                    outputs=tuple(
                        CheckedOutput(index=i, snr_db=ratio) for i, ratio in enumerate(ratios[n])
                    ),
                )
            )
            for n, each in enumerate(passed)
        },
    )


def reported() -> DelegationReport:
    def summary(macs: int, share: float | None, calls: int, outside: int) -> MethodReport:
        return MethodReport(
            summary=MethodSummary(
                delegate_calls=calls,
                delegated_operators=9,
                undelegated_operators=outside,
                delegated_operator_share=0.5,
                macs=macs,
                delegated_macs_share=1.0,
                predicted_sme2_macs_share=share,
            )
        )

    methods = {"m0": summary(100, 1.0, 1, 3), "m1": summary(200, 0.5, 2, 4), "m2": MethodReport()}
    return DelegationReport(model="m", methods=methods)


def test_a_program_may_lose_just_the_tolerance() -> None:
    found, _, _ = search("a", program)
    baseline = program(())
    assert found.tolerance_db == 2.0
    assert found.objection(program(("a",), snr_db=58.0), baseline) is None
    objection = found.objection(program(("a",), snr_db=57.9), baseline)
    assert objection == "it loses 2.10 dB, more than 2.00 dB"
    # AND without a figure on either side nothing is lost.
    assert found.objection(program(("a",), snr_db=None), baseline) is None
    assert found.objection(program(("a",), snr_db=10.0), program((), snr_db=None)) is None


class Idle(Planted):
    """A search in which no rewrite changes a figure, with outputs that hold or do not."""

    holds = True

    def _export(self, asked: Trial) -> Trial:
        return program(asked.rewrites, number=asked.number, passed=self.holds)

    def _mix_precisions(self, _: Trial) -> bool:
        return False


@pytest.mark.parametrize("holds", [False, True])
def test_a_search_without_a_result_leaves_no_earlier_one(tmp_path: Path, *, holds: bool) -> None:
    for name in ("optimized.pte", "optimized.json", "baseline.pte", "recipe.py", "notes.txt"):
        (tmp_path / name).write_text("of an earlier search")
    search = Idle(ExportRequest("toy_cnn"), tmp_path, 2.0, None, lambda _: None)
    search.holds = holds
    with (
        nullcontext()
        if holds
        else pytest.raises(ExportError, match="outputs of toy_cnn in fp16 are wrong")
    ):
        search.run()
    assert {path.name for path in tmp_path.iterdir()} == {"optimize.json", "notes.txt"}


def test_a_trial_is_one_line_with_its_result() -> None:
    """Names of ten rewrites stood in each line, and no result in any; then two lines named none."""
    every = ["a", "b", "c", "d", "e"]
    assert describe_choice((), every) == "as it is"
    assert describe_choice(every, every) == "all rewrites"
    assert describe_choice(every[1:], every) == "without a"
    assert describe_choice(every, [*every, *"wxyz"]) == "without w, x, y and z"
    assert describe_choice(every, [*every, *"uvwxyz"]) == "with a, b, c, d and e"
    assert describe_choice(every[:2], every, 2) == "with a and b, 2 layers in float32"
    made = Trial(
        rewrites=("a",), macs=1000, macs_without_sme2=100, delegate_calls=1, outside=2, snr_db=63.9,
        passed=True,
    )  # fmt: skip
    told = "90.0 % of MACs on SME2 (predicted), 1 delegate call, 2 outside, SNR 63.9 dB"
    assert describe_result(made) == told
    assert describe_result(made.model_copy(update={"passed": False})) == f"{told}: outputs wrong"
    assert describe_result(Trial(rewrites=(), problem="no way")) == "no program: no way"
