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
ARRIVE = "tests/unit/test_settings_arrive.py"
TABLES = "tests/unit/test_report_tables.py"
FINDINGS = "tests/unit/test_findings.py"
INTEGRITY = "tests/unit/test_integrity.py"
RUN_CONFIG = "tests/integration/test_run_config.py"
IN_A_PAGE = "tests/unit/test_report_html.py"
TRACES = "tests/unit/test_report_traces.py"
EMULATOR = "tests/unit/test_emulator_parts.py"
PHONE = "tests/unit/test_android_words.py"
SESSION = "tests/unit/test_android_session.py"
UNTIMED = "tests/integration/test_untimed.py"
SEARCH = "tests/unit/test_optimize_search.py"
REWRITES = "tests/integration/test_rewrites.py"

MUTATIONS = (
    Mutation(
        64, "CPUs are not asked for on Linux", "targets/runner.py",
        "            *taskset_command(request.cpus),\n",
        "", (PROMISES,),
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
        "if name in REQUESTED}", "if name in REQUESTED - {'seed'}}", (ARRIVE, PROMISES),
    ),
    Mutation(
        8, "the config's margin is ignored", "analysis/compare/pairs.py",
        "margin=settings.margin)", "margin=DEFAULT_MARGIN)", (PROMISES,),
    ),
    Mutation(
        9, "a pair at named thread counts is dropped", "analysis/compare/pairs.py",
        "if alike or not is_ambiguous:", "if alike:", (COMPARISON, PROMISES),
    ),
    Mutation(
        21, "load without the method's part", "analysis/run_analysis.py",
        "[b.load.total_ns for b in blocks]", "[b.load.program_ns for b in blocks]", (PROMISES,),
    ),
    Mutation(
        20, "the smallest peak of memory", "analysis/run_analysis.py",
        "peak_rss_bytes=max(peaks, default=None)", "peak_rss_bytes=min(peaks, default=None)",
        (PROMISES,),
    ),
    Mutation(
        7, "different runs are not told", "analysis/compare/comparison.py",
        "elif not _are_in_turns(baseline, candidate):",
        "elif baseline.run.source == candidate:", (COMPARISON, PROMISES),
    ),
    Mutation(
        6, "an interval from three pairs on", "analysis/compare/comparison.py",
        "len(pair_blocks(before, after)) < 6", "len(pair_blocks(before, after)) < 3",
        (COMPARISON, PROMISES),
    ),
    Mutation(
        4, "operators have no interval between launches", "analysis/split/operators.py",
        "interval = mean_interval(self.launches_ns)",
        "return None", ("tests/integration/test_replicated_split.py",),
    ),
    Mutation(
        10, "any order is balanced", "analysis/validity.py",
        "if is_balanced(count, len(first))", "if count", (VALIDITY,),
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
        'f"experiment {now.name}: ")', 'f"experiment {now.name}: ", ("threads",))',
        (PIPELINE, PROMISES),
    ),
    Mutation(
        44, "another launcher is the same run", "measuring/resume.py",
        'f"experiment {now.name}: ")', 'f"experiment {now.name}: ", ("launcher",))',
        (PIPELINE, PROMISES),
    ),
    Mutation(
        45, "a second input is the same run", "measuring/resume.py",
        "for identity in measured.inputs] != inputs:",
        "for identity in measured.inputs][:1] != inputs[:1]:", (PIPELINE, PROMISES),
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
        27, "a window of later runs", "history/run_spread.py",
        "(branch != run.git_branch or point.measured_at <= run.measured_at)",
        "(branch is not None or point.measured_at <= run.measured_at)",
        (SELECTION,),
    ),
    Mutation(
        29, "failed runs are a baseline", "history/selection.py",
        "SOUND: Final = (Run.status == OK, ", "SOUND: Final = (",
        (SELECTION,),
    ),
    Mutation(
        62, "Android's mask is off by one core", "targets/android/target.py",
        "1 << cpu for cpu in cpus", "2 << cpu for cpu in cpus",
        ("tests/unit/test_android_words.py",),
    ),
    Mutation(
        13, "gains of int8 products are not counted", "analysis/compare/amdahl.py",
        "and after_runs[pair.candidate].takes_sme",
        'and after_runs[pair.candidate].takes_sme and "PQS8" not in pair.candidate.data_types',
        (COMPARISON,),
    ),
    Mutation(
        14, "a rate is a limit from four steps of the clock", "analysis/insight.py",
        "_COARSE_CLOCK_STEPS: Final = 10", "_COARSE_CLOCK_STEPS: Final = 4",
        ("tests/unit/test_attribution.py",),
    ),
    Mutation(
        15, "an execution of thousands of times the median is split", "analysis/split/executions.py",
        "_NEAR_SHARE: Final = 0.5", "_NEAR_SHARE: Final = 5000.0",
        (FINDINGS, "tests/unit/test_operator_split.py"),
    ),
    Mutation(
        28, "a branch's older commits", "history/gate.py",
        "if points[member].source == newest)", "if points[member].source)", (SELECTION,),
    ),
    Mutation(
        31, "a spread of emulated runs", "history/run_spread.py",
        "*SOUND, Run.representative == true())\n", "*SOUND)\n", (SELECTION,),
    ),
    Mutation(
        32, "a run that was moved is not followed", "history/store.py",
        "    if moves:\n", "    if not moves:\n", ("tests/integration/history/test_history_store.py",),
    ),
    Mutation(
        35, "a level's first run is called the last of the one before", "history/trend.py",
        "numbers[change.earliest - 1]", "numbers[change.earliest]", (SELECTION,),
    ),
    Mutation(
        36, "a change's two commits are one", "history/tables.py",
        "{format_commit(change.previous)}..", "{format_commit(change.run)}..",
        ("tests/integration/history/test_history_gate.py",),
    ),
    Mutation(
        38, "a budget cuts a pair of blocks", "measuring/pipeline.py",
        "for piece in pieces:", "for piece in ((x,) for y in pieces for x in y):",
        (PIPELINE,),
    ),
    Mutation(
        46, "a run that was interrupted is complete", "run/validation.py",
        'if manifest.status == "running":\n        yield ValidationFinding(\n            "incomplete",',
        'if manifest.status == "running":\n        yield ValidationFinding(\n            "ok",',
        (RUN_CONFIG,),
    ),
    Mutation(
        47, "blocks that start slow are not told", "run/validation.py",
        "sum(settled) < len(settled) / 2", "sum(settled) < 0", (INTEGRITY,),
    ),
    Mutation(
        48, "an operator's emulated speedup is told", "analysis/compare/comparison.py",
        "if None in sides:", "if False:", (COMPARISON, UNTIMED),
    ),
    Mutation(
        49, "the chance of the contrary as p", "tables/comparisons.py",
        "_effect(lambda e: e.p_value)", "_effect(lambda e: 1 - e.p_value)", (TABLES,),
    ),
    Mutation(
        50, "intervals without width", "tables/table.py",
        'of=end("high")', 'of=end("low")', (TABLES,),
    ),
    Mutation(
        52, "the chart of latencies is upside down", "views/charts.py",
        "_CHART_HEIGHT * (1 - min(max(scale.share(value), 0.0), 1.0))",
        "_CHART_HEIGHT * min(max(scale.share(value), 0.0), 1.0)", (IN_A_PAGE,),
    ),
    Mutation(
        53, "negative durations in the timeline", "views/events.py",
        "times.duration[rows].tolist() if times", "(-times.duration[rows]).tolist() if times",
        ("tests/unit/test_report_files.py", "tests/unit/test_etdump_plausibility.py"),
    ),
    Mutation(
        55, "the emulated CPU is not the one asked for", "targets/emulator/target.py",
        "        cpu = self.cpu\n", '        cpu = "max"\n',
        (EMULATOR,),
    ),
    Mutation(
        56, "an emulator proves times", "targets/registry.py",
        "Policy(proves_times=False, ",
        "Policy(proves_times=True, ", (UNTIMED,),
    ),
    Mutation(
        57, "what a killed etprof left on a phone stays", "targets/android/session.py",
        'if match and not _is_running(int(match["process"]), match["mark"]):',
        'if match and _is_running(int(match["process"]), match["mark"]):', (SESSION,),
    ),
    Mutation(
        58, "files that arrive changed are taken", "targets/android/session.py",
        "if hash_file(local) != expected.sha256:", "if not expected.sha256:", (SESSION,),
    ),
    Mutation(
        59, "a phone's result is brought first", "targets/android/target.py",
        '    named = (\n', '    named = (\n        ("result.json", request.result),\n', (SESSION,),
    ),
    Mutation(
        60, "a signal on the phone is no signal", "targets/android/session.py",
        "128 - number if number > 128 else number", "number", (SESSION,),
    ),
    Mutation(
        61, "a phone that comes back keeps what was known of its files",
        "targets/android/target.py", "        self._store.forget()\n", "", (SESSION,),
    ),
    Mutation(
        63, "an Arm machine with SME has no modes", "targets/local.py",
        "modes if len(modes) > 1 else", "modes if len(modes) > 3 else",
        ("tests/unit/test_host_runner.py",),
    ),
    # Planted rewrites: wrong outputs, half a per cent, help with another only, an unknown version.
    Mutation(
        70, "a program of wrong outputs may be used", "optimize/search.py",
        "if not trial.passed:", "if trial.rewrites is None:", (SEARCH,),
    ),
    Mutation(
        71, "another than the culprit is named", "optimize/search.py",
        "return sound, (names[spoiled_count - 1], reason)", "return sound, (names[0], reason)",
        (SEARCH,),
    ),
    Mutation(
        72, "outputs in the other SME modes are not held", "optimize/search.py",
        "if trial.counted is not None and trial.counted.problem is not None:",
        "if trial.counted is None and self.names is None:", (SEARCH,),
    ),
    Mutation(
        73, "what is no difference stays", "optimize/search.py",
        'kept=effect == "better", why=why', 'kept=effect != "worse", why=why', (SEARCH,),
    ),
    Mutation(
        74, "only what helps alone is tried with others", "optimize/search.py",
        "        bundle = self._first_sound(baseline)\n",
        "        alone = {n: self.try_out((n,)) for n in self.names}\n"
        "        better = [n for n in alone if compare(alone[n], baseline, 1000) == 'better']\n"
        "        self.names = better or self.names[:1]\n"
        "        bundle = self._first_sound(baseline)\n", (SEARCH,),
    ),
    Mutation(
        75, "an unknown ExecuTorch is vouched for", "backends/xnnpack/lowering_rewrites.py",
        'if not installed.startswith(f"{_KNOWN_VERSION}."):', "if not installed:",
        (f"{REWRITES}::test_what_this_executorch_cannot_vouch_for_is_disabled_and_told",),
    ),
    Mutation(
        76, "a rewrite that nobody asked for ends an export", "export/changes/rewriting.py",
        "            failed[rewrite.name] = str(error)\n            continue\n", "            raise\n",
        (f"{REWRITES}::test_one_that_fails_and_that_nobody_asked_for_is_told_and_ends_no_export",),
    ),
    Mutation(
        77, "one product of attention does the work of both", "backends/xnnpack/graph.py",
        "_map_products(_map_batch_norms(mapped, names_by_handle), calls)", "_map_batch_norms(mapped, names_by_handle)",
        (f"{REWRITES}::test_each_product_of_attention_does_its_own_work",),
    ),
)  # fmt: skip
