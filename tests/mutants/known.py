"""The mutations: what is changed, where, and which tests must go red.

They are lines that once could be changed without a red test, of settings that must arrive and rows
that must be chosen. One whose text is gone has to be adapted to the code that took its place.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One change; `old` stands once in `file`, or once in the whole package if it has moved."""

    number: int
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


PROMISES = "tests/integration/test_promises.py"
PIPELINE = "tests/unit/test_pipeline.py"
COMPARISON = "tests/unit/test_comparison.py"
VALIDITY = "tests/unit/test_validity.py"
SELECTION = "tests/unit/test_history_selection.py"

MUTATIONS = (
    Mutation(
        64, "CPUs are not asked for on Linux", "targets/runner.py",
        "before = [*taskset_words(request.cpus), *request.launcher]",
        "before = [*request.launcher]", (PROMISES,),
    ),
    Mutation(
        41, "waits while the device is cold", "measuring/conditions.py",
        "hottest is None or hottest <= limit", "hottest is None or hottest > limit", (PROMISES,),
    ),
    Mutation(
        40, "never cools down", "measuring/conditions.py",
        "if not is_first and settings.cool_down_s:", "if is_first and settings.cool_down_s < 0:",
        (PROMISES,),
    ),
    Mutation(
        39, "the config's seed does not reach the runner", "measuring/launching.py",
        "seed=self._settings.seed,", "seed=0,", (PROMISES,),
    ),
    Mutation(
        8, "the config's margin is ignored", "analysis/compare/pairs.py",
        "margin=wanted.margin)", "margin=DEFAULT_MARGIN)", (PROMISES,),
    ),
    Mutation(
        9, "a pair at named thread counts is dropped", "analysis/compare/pairs.py",
        "if named or alike or not several:", "if alike or not several:", (COMPARISON, PROMISES),
    ),
    Mutation(
        21, "load without the method's part", "analysis/run_analysis.py",
        "b.load.program_ns + b.load.method_ns", "b.load.program_ns", (PROMISES,),
    ),
    Mutation(
        20, "the smallest peak of memory", "analysis/run_analysis.py",
        "peak_rss_bytes=max(peaks, default=None)", "peak_rss_bytes=min(peaks, default=None)",
        (PROMISES,),
    ),
    Mutation(
        7, "different runs are not told", "analysis/compare/comparison.py",
        "elif baseline.run.source != candidate.run.source:",
        "elif baseline.run.source == candidate:", (COMPARISON, PROMISES),
    ),
    Mutation(
        6, "an interval from three pairs on", "analysis/compare/comparison.py",
        "len(pair_blocks(before, after)) < 6", "len(pair_blocks(before, after)) < 3",
        (COMPARISON, PROMISES),
    ),
    Mutation(
        4, "the operators' interval is too narrow", "analysis/compare/comparison.py",
        "interval = (left[0] / right[1], left[1] / right[0])",
        "interval = (left[0] / right[0], left[1] / right[1])", (COMPARISON, PROMISES),
    ),
    Mutation(
        10, "4 of 10 is balanced", "analysis/validity.py",
        "abs(2 * count - len(first)) <= 1", "abs(2 * count - len(first)) <= 2", (VALIDITY,),
    ),
    Mutation(
        11, "the state after a launch is ignored", "analysis/validity.py",
        "for s in (launch.state_before, launch.state_after) if s]",
        "for s in (launch.state_before,) if s]", (VALIDITY,),
    ),
    Mutation(
        12, "failed launches count in the order", "analysis/validity.py",
        "launch.experiment in names and launch.error is None", "launch.experiment in names",
        (VALIDITY,),
    ),
    Mutation(
        22, "another ExecuTorch is alike", "analysis/compare/comparability.py",
        '"executorch_version", "sanitizers"', '"sanitizers"', (COMPARISON,),
    ),
    Mutation(
        43, "other threads are the same run", "measuring/resume.py",
        '"sme", "threads", "mode"', '"sme", "mode"', (PIPELINE, PROMISES),
    ),
    Mutation(
        44, "another launcher is the same run", "measuring/resume.py",
        '"runner", "launcher",', '"runner",', (PIPELINE, PROMISES),
    ),
    Mutation(
        45, "a second input is the same run", "measuring/resume.py",
        "for each in manifest.inputs] != inputs:",
        "for each in manifest.inputs][:1] != inputs[:1]:", (PIPELINE, PROMISES),
    ),
    Mutation(
        37, "precise enough at twice the width", "measuring/stopping.py",
        "(interval.high - interval.low) / 2 /", "(interval.high - interval.low) / 4 /",
        ("tests/unit/test_pipeline.py", "tests/unit/test_plan.py", PROMISES),
    ),
    Mutation(
        24, "no drift is seen", "statistics/noise.py",
        "statistics.median(medians[-half:]) /", "statistics.median(medians[:half]) /",
        ("tests/unit/test_findings.py",),
    ),
    Mutation(
        3, "what is beyond steady is added", "analysis/split/cold_start.py",
        "block.first_inference_ns - float", "block.first_inference_ns + float",
        (COMPARISON,),
    ),
    Mutation(
        27, "a window of later runs", "history/selection.py",
        "own = earlier.where(", "own = same_series.where(",
        (SELECTION,),
    ),
    Mutation(
        29, "failed runs are a baseline", "history/selection.py",
        "Run.series == candidate.series, Run.status == OK,", "Run.series == candidate.series,",
        (SELECTION,),
    ),
    Mutation(
        62, "Android's mask is off by one core", "targets/android/target.py",
        "1 << cpu for cpu in cpus", "2 << cpu for cpu in cpus",
        ("tests/unit/test_android_words.py",),
    ),
)  # fmt: skip
