"""Comparing known runs gives the known truth; unlike runs are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etprof.analysis.compare.comparability import (
    find_differences,
    find_unknowns,
    refuse_unlike,
)
from etprof.analysis.compare.comparison import compare_sides
from etprof.analysis.compare.pairs import compare_within, match_runs
from etprof.analysis.compare.waterfall import Waterfall, WaterfallStep
from etprof.analysis.findings.finding import required
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import InputFileError, UsageError
from etprof.cli import run_command_line
from etprof.run.load import Run as LoadedRun
from etprof.run.manifest import Experiment as PlannedExperiment
from etprof.tables.verdicts import badge_of, describe_comparison, describe_plainly
from tests.known_etdumps import US, timed
from tests.known_runs import OFF_OPS, ON_OPS, Experiment, Op, Run, analyze, on_off_run, write_run
from tests.manifests import edit_manifest
from tests.world.results import result_document

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.run_analysis import RunAnalysis

OFF_TOTAL_US = 400 + 300 + 50 + 10 + 4 + 31 + 100 + 4 + 2
ON_TOTAL_US = 10 + 5 + 100 + 50 + 60 + 4 + 31 + 25 + 4 + 2


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    (found,) = compare_within(analyze(tmp_path_factory.mktemp("runs") / "r", on_off_run()))
    return found


def test_off_is_the_baseline(comparison: Comparison) -> None:
    assert comparison.name == "android_off → android_sme2"
    assert comparison.latency is not None
    assert comparison.latency.verdict == "faster"
    assert comparison.latency.speed_up == pytest.approx(901 / 301.5, rel=0.01)
    assert comparison.latency.interval is not None
    assert [note for note in comparison.notes if "one launch" not in note] == []


def test_waterfall_is_the_description_and_closes(comparison: Comparison) -> None:
    waterfall = required(timed(comparison).waterfall)
    assert waterfall.baseline_ns == OFF_TOTAL_US * US
    assert waterfall.candidate_ns == ON_TOTAL_US * US
    deltas = {step.label: step.delta_ns / US for step in waterfall.steps if step.delta_ns}
    assert deltas == {
        "Pack LH (X16) #1": 5,
        "Convolution (NHWC, PF16) IGEMM #1": -300,
        "Convolution (NHWC, PF16) IGEMM #2": -240,
        "Fully Connected (NC, PF16) GEMM #1": -75,
        # One operator more, whose time is rounded too.
        "Delegate overhead": -1,
        "Rounding of operators' times": 1,
    }
    assert waterfall.residual_ns == 0
    assert waterfall.steps[-1] == WaterfallStep("Unattributed", "unattributed", 0, 0)


def test_largest_steps_and_the_rest_still_close(comparison: Comparison) -> None:
    waterfall = required(timed(comparison).waterfall)
    shown = waterfall.largest(2)
    assert [step.label for step in shown][:2] == [
        "Convolution (NHWC, PF16) IGEMM #1",
        "Convolution (NHWC, PF16) IGEMM #2",
    ]
    assert shown[2].label.endswith(" others")
    assert sum(step.delta_ns for step in shown) == waterfall.candidate_ns - waterfall.baseline_ns
    assert Waterfall(1, 1, ()).largest(3) == ()


def test_what_is_nothing_is_no_step() -> None:
    """Finding 14: sums lose a bit, and it was drawn as "Unattributed +0 ns", "2 others 0 ns"."""
    gain = WaterfallStep("a", "operator", 9.0, 3.0)
    equal = WaterfallStep("b", "operator", 2.0, 2.0)
    nothing = WaterfallStep("c", "overhead", 0.0, 0.0)
    rounding = WaterfallStep("Unattributed", "unattributed", 1e-12, -1e-12)
    assert Waterfall(9.0, 3.0, (gain, nothing, rounding)).largest(3) == (gain,)
    shown = Waterfall(11.0, 5.0, (gain, equal, rounding)).largest(3)
    assert [(step.label, step.baseline_ns) for step in shown] == [("a", 9.0), ("1 other", 2.0)]


def test_categories_and_shares(comparison: Comparison) -> None:
    convolution = timed(comparison).categories["Convolution"]
    assert (convolution.baseline_ns, convolution.candidate_ns) == (750 * US, 210 * US)
    assert convolution.speed_up == pytest.approx(750 / 210)
    movement = timed(comparison).categories["Data Movement"]
    # THEN a share may grow although the time hardly does
    assert movement.candidate_share > 2 * movement.baseline_share
    for side in ("baseline_share", "candidate_share"):
        total = sum(getattr(change, side) for change in timed(comparison).classes.values())
        assert total == pytest.approx(1.0)


def test_amdahl_panel(comparison: Comparison) -> None:
    panel = required(timed(comparison).amdahl)
    assert panel.accelerated_operators == 3
    assert panel.accelerated_share == pytest.approx(800 / OFF_TOTAL_US)
    assert panel.accelerated_speed_up == pytest.approx(800 / 185)
    assert panel.achieved == pytest.approx(OFF_TOTAL_US / ON_TOTAL_US)
    assert panel.ceiling == pytest.approx(OFF_TOTAL_US / (OFF_TOTAL_US - 800))
    first = panel.bottlenecks[0]
    assert first.operator_class.finer == "convolution"
    assert first.speed_up_if_removed == pytest.approx(ON_TOTAL_US / (ON_TOTAL_US - 160))


@pytest.mark.parametrize(
    ("plain", "packed"),
    [
        ("F32", "PF32"),
        ("F16", "PF16"),
        ("QS8, QC8W", "PQS8, QS8, QC8W"),
        ("QD8, F32, QC8W", "QP8, F32, QC8W"),
    ],
)
def test_what_became_faster_on_sme_counts_in_every_type(
    plain: str, packed: str, tmp_path: Path
) -> None:
    """Mutant 13: the gains of int8 were left out."""
    sides = (("off", "off", plain, 300), ("on", "sme2", packed, 100))
    run = Run([
        Experiment(name, [Op(f"Fully Connected (NC, {types}) GEMM #1", us), OFF_OPS[4]], sme=sme)
        for name, sme, types, us in sides
    ])  # fmt: skip
    (found,) = compare_within(analyze(tmp_path / "r", run))
    panel = required(timed(found).amdahl)
    assert panel.accelerated_operators == 1
    assert panel.accelerated_speed_up == pytest.approx(3)


def test_cold_start_ledger(comparison: Comparison) -> None:
    ledger = {entry.label: entry for entry in timed(comparison).ledger}
    assert ledger["Load method (with weight packing)"].baseline == 90_000
    assert ledger["First inference"].effect is not None
    assert ledger["First inference"].effect.verdict == "faster"
    assert ledger["Peak memory"].candidate == 2**21
    assert ledger["Peak memory"].effect is None
    # Described as three times the steady inference.
    beyond, steady = ledger["First inference beyond steady"], ledger["Steady inference"]
    assert beyond.baseline == pytest.approx(2 * (steady.baseline or 0), rel=0.01)


def test_equal_runs_are_no_difference(tmp_path: Path) -> None:
    same = [
        Experiment("off", OFF_OPS, latency_us=[900 + 9 * (i % 2) for i in range(10)]),
        Experiment("sme2", OFF_OPS, sme="sme2", latency_us=[900 + 9 * (i % 2) for i in range(10)]),
    ]
    (found,) = compare_within(analyze(tmp_path / "r", Run(same)))
    assert found.latency is not None
    assert found.latency.verdict == "no difference"
    assert all(step.delta_ns == 0 for step in required(timed(found).waterfall).steps)
    assert required(timed(found).amdahl).accelerated_operators == 0
    assert required(timed(found).amdahl).ceiling == 1.0


def test_emulated_times_are_never_compared(tmp_path: Path) -> None:
    run = replace(on_off_run(), meaningful=False, platform="emulator")
    (found,) = compare_within(analyze(tmp_path / "r", run))
    assert found.latency is None
    assert found.times is None
    assert found.notes == (
        "times under emulation mean nothing; only structure and kernels are compared",
    )


def test_thread_counts_are_compared_at_equal_mode(tmp_path: Path) -> None:
    sweep = [
        Experiment(f"{mode}_t{threads}", OFF_OPS, sme=mode, threads=threads)
        for mode in ("off", "sme2")
        for threads in (1, 4)
    ]
    found = compare_within(analyze(tmp_path / "r", Run(sweep)))
    assert [comparison.name for comparison in found] == [
        "off_t1 → sme2_t1",
        "off_t4 → sme2_t4",
        "off_t1 → off_t4",
        "sme2_t1 → sme2_t4",
    ]


def test_unlike_sides_are_refused_by_name(tmp_path: Path) -> None:
    one = analyze(tmp_path / "one", Run([Experiment("off", OFF_OPS)]))
    changed = Run(
        [Experiment("sme2", ON_OPS, sme="sme2", threads=4)],
        platform="mac",
        inputs=("c" * 64,),
        build_type="Debug",
    )
    other = analyze(tmp_path / "other", changed)
    ((before, after),) = match_runs(one, other)
    with pytest.raises(UsageError) as refusal:
        refuse_unlike(before, after, ["device"])
    assert str(refusal.value) == (
        f"{tmp_path}/one:off and {tmp_path}/other:sme2 were measured under different "
        "conditions: they differ in threads (1 against 4); inputs (aaaaaaaaaaaa against cccccccccccc); "
        "runner (build_type=Release against build_type=Debug); measure them under the same "
        "conditions, or compare them anyway with --allow threads --allow inputs --allow runner"
    )
    refuse_unlike(before, after, ["threads", "inputs", "device", "runner"])


@pytest.mark.parametrize(("blocks", "is_told"), [(5, True), (6, False)])
def test_too_few_pairs_for_an_interval_are_told(blocks: int, is_told: bool, tmp_path: Path) -> None:
    times = [100.0 + i for i in range(blocks)]
    sides = [Experiment("off", OFF_OPS, latency_us=times),
             Experiment("on", ON_OPS, sme="sme2", latency_us=times)]  # fmt: skip
    (found,) = compare_within(analyze(tmp_path / "r", Run(sides)))
    assert any("fewer than six pairs" in note for note in found.notes) is is_told


def test_sides_of_different_runs_are_told(tmp_path: Path) -> None:
    one, other = (
        analyze(tmp_path / name, Run([Experiment("off", OFF_OPS)])) for name in ("one", "other")
    )
    ((before, after),) = match_runs(one, other)
    assert any("different runs" in note for note in compare_sides(before, after).notes)


def test_a_pair_at_named_thread_counts_is_compared(tmp_path: Path) -> None:
    sides = [Experiment(f"off_t{count}", OFF_OPS, threads=count) for count in (1, 4)]
    run = write_run(tmp_path / "r", Run(sides))
    wanted = [{"experiment": "off", "threads": count} for count in (4, 1)]
    pair = dict(zip(("baseline", "candidate"), wanted, strict=True))
    config = {"content": {"analysis": {"compare_pairs": [pair]}}}
    edit_manifest(run, lambda d: d.update(config=config))
    (found,) = compare_within(analyze_run(LoadedRun.load(run)))
    assert found.name == "off_t4 → off_t1", "which nobody compares unasked"


def test_another_executorch_is_not_alike(tmp_path: Path) -> None:
    def build(version: str) -> RunAnalysis:
        run = write_run(tmp_path / version, Run([Experiment("off", OFF_OPS)]))
        version_only = {"executorch_version": version}
        edit_manifest(run, lambda d: d["runner"]["build"].update(version_only))
        return analyze_run(LoadedRun.load(run))

    ((before, after),) = match_runs(build("1.5.1"), build("1.6.0"))
    with pytest.raises(UsageError, match="--allow runner"):
        refuse_unlike(before, after, [])


def test_android_profiles_and_cores_are_compared(tmp_path: Path) -> None:
    one, other = (analyze(tmp_path / name, on_off_run()) for name in ("one", "other"))
    ((before, after), *_) = match_runs(one, other)
    assert before.provenance is not None
    cores = PlannedExperiment(name=before.experiment.name, sme="off", threads=1, cpus=(4, 5))
    boosted = before.provenance.model_copy(
        update={"target": {"profile": "boost"}, "experiments": (cores,)}
    )
    assert [
        str(difference)
        for difference in find_differences(replace(before, provenance=boosted), after)
    ] == ["profile (boost against none)", "cores (4,5 against any)"]


def test_runs_with_and_without_random_addresses_are_not_alike(tmp_path: Path) -> None:
    """N3-1: nothing read whether the system randomizes addresses."""

    def randomized(state: str | None) -> RunAnalysis:
        run = write_run(tmp_path / str(state), Run([Experiment("off", OFF_OPS)]))
        edit_manifest(run, lambda d: d["target"].update({"address_randomization": state}))
        return analyze_run(LoadedRun.load(run))

    ((before, after),) = match_runs(randomized("on"), randomized("off"))
    with pytest.raises(UsageError, match=r"\(on against off\).*--allow address_randomization"):
        refuse_unlike(before, after, [])
    ((before, after),) = match_runs(randomized("without heap"), randomized(None))
    assert "address_randomization" not in find_unknowns(before, after)


def test_runs_pair_by_mode_and_threads_or_by_name(tmp_path: Path) -> None:
    one, other = (analyze(tmp_path / name, on_off_run()) for name in ("one", "other"))
    pairs = match_runs(one, other)
    assert [(a.experiment.name, b.experiment.name) for a, b in pairs] == [
        ("android_off", "android_off"),
        ("android_sme2", "android_sme2"),
    ]
    ((before, after),) = match_runs(one, other, ("android_off", "android_sme2"))
    assert (before.experiment.sme, after.experiment.sme) == ("off", "sme2")
    with pytest.raises(UsageError, match="has no experiment 'nope'; it has android_off, android_s"):
        match_runs(one, other, ("nope", None))


def test_nothing_to_pair(tmp_path: Path) -> None:
    one = analyze(tmp_path / "one", on_off_run())
    sme1 = replace(on_off_run().experiments[1], name="x", sme="sme1")
    four = replace(sme1, name="y", threads=4)
    other = analyze(tmp_path / "other", Run([sme1, four]))
    with pytest.raises(
        UsageError, match=r"no experiment of .*one is like one of .*name two, as in"
    ):
        match_runs(one, other)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "r", on_off_run())
    pair = [f"{run}:android_off", f"{run}:android_sme2"]
    assert run_command_line(["compare", *pair]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "known, fp16, 1 thread, SME off → SME2: faster, speedup 2.99× (95 % interval"
    )
    assert "−300 µs" in text
    assert run_command_line(["compare", *pair, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["latency"]["verdict"] == "faster"
    assert document["waterfall"]["residual_ns"] == 0
    assert len(document["operators"]) == len(ON_OPS)


def test_etdumps_alone_have_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "r", on_off_run())
    before, after = sorted(run.glob("*/*.etdump"))
    assert run_command_line(["compare", str(before), str(after), "--full"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "not timed without tracer, so there is no verdict" in text
    fields = (
        "threads, inputs, device, profile, cores, runner, method, warmup, iterations, minimum_time, "
        "blocks, load and governor"
    )
    assert f"{fields} are not known for at least one side" in text


def test_emulated_comparison_shows_structure_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "r", replace(on_off_run(), meaningful=False, platform="emulator"))
    assert run_command_line(["compare", f"{run}:android_off", f"{run}:android_sme2", "--full"]) == 0
    text = capsys.readouterr().out
    assert "Operators side by side" in text
    assert "µs" not in text


def test_emulated_runs_are_compared_in_structure_mode_by_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three rows said "not representative" of one pair of names, and nothing of what had changed."""
    before = replace(on_off_run(), meaningful=False, platform="emulator")
    off, on = before.experiments
    runs = (
        write_run(tmp_path / "old", before),
        write_run(tmp_path / "new", replace(before, experiments=(off, replace(on, ops=OFF_OPS)))),
    )
    assert run_command_line(["compare", *map(str, runs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "SME off: nothing changed in structure" in lines
    assert "SME2: operators on SME 3 → 0" in lines
    assert any(line.split()[-4:] == ["SME", "off", "not", "representative"] for line in lines)
    names = [f"{run}:android_sme2" for run in runs]
    assert run_command_line(["compare", *names]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert ", SME2, old → new: emulated" in text
    assert "In structure: operators on SME 3 → 0." in text
    assert run_command_line(["compare", *names, "--json"]) == 0
    structure = json.loads(capsys.readouterr().out)["structure"]
    assert [(row["side"], row["sme_operators"]) for row in structure] == [("old", 3), ("new", 0)]


def test_a_speedup_that_is_not_the_ratio_of_two_medians_says_what_it_is(tmp_path: Path) -> None:
    """All pairs but one have 2x; that one moves the candidate's median, so that 11x stands beside it."""
    off, on = on_off_run().experiments
    off = replace(off, latency_us=[100, 1000] * 10)
    alike = replace(on, latency_us=[50, 500] * 10)
    moved = replace(on, latency_us=[50, 500] * 9 + [50, 10])
    texts = []
    for name, candidate in {"alike": alike, "moved": moved}.items():
        (found,) = compare_within(analyze(tmp_path / name, Run((off, candidate))))
        texts.append(describe_plainly(found))
    note = "The speedup is the median ratio of neighbouring launches, not the ratio of these two."
    assert [note in text for text in texts] == [False, True]


def with_outputs(run: Path, values: dict[str, list[float]]) -> Path:
    """Adds what the per-operator breakdown's passes computed."""
    for name, numbers in values.items():
        (etdump,) = (run / name).glob("*.etdump")
        outputs = etdump.with_name(f"{etdump.stem}_outputs")
        outputs.mkdir()
        np.array(numbers, "<f4").tofile(outputs / "output_0.bin")
        output = {
            "index": 0, "dtype": "float32", "shape": [1, len(numbers)], "size_bytes": 4 * len(numbers),
        }  # fmt: skip
        document = {**result_document(1000), "outputs": [output]}
        etdump.with_name(f"{etdump.stem}_result.json").write_text(json.dumps(document))
    return run


def test_equal_outputs_are_said_to_be(tmp_path: Path) -> None:
    run = with_outputs(
        write_run(tmp_path / "r", on_off_run()),
        {"android_off": [1, 2, 3], "android_sme2": [1, 2.001, 3]},
    )
    (found,) = compare_within(analyze_run(LoadedRun.load(run)))
    assert found.outputs_agree
    (check,) = found.outputs
    assert str(check) == (
        "output 0: 71.5 dB signal to noise (at least 40), largest difference 0.001"
    )
    assert badge_of(found) == "faster"


def test_a_fast_wrong_answer_is_no_speed_up(tmp_path: Path) -> None:
    run = with_outputs(
        write_run(tmp_path / "r", on_off_run()),
        {"android_off": [1, 2, 3], "android_sme2": [3, 2, 1]},
    )
    (found,) = compare_within(analyze_run(LoadedRun.load(run)))
    assert badge_of(found) == "different results"
    assert found.notes[0].startswith(
        "the sides computed different results, so no speedup counts: output 0: 2.4 dB signal"
    )
    assert "different results; faster, speedup 2.99×" in describe_comparison(found)


@pytest.mark.parametrize(("weights", "compared"), [("c", 2), ("d", 0)])
def test_outputs_of_other_weights_are_not_compared(
    weights: str, compared: int, tmp_path: Path
) -> None:
    """A-D23: a program with another .ptd file counted as the same program."""
    found = []
    for place, content in (("one", "c"), ("other", weights)):
        run = with_outputs(
            write_run(tmp_path / place, on_off_run()),
            {"android_off": [1, 2, 3], "android_sme2": [1, 2, 3]},
        )
        data = {"path": "w.ptd", "sha256": content * 64, "size_bytes": 4}
        edit_manifest(run, lambda d, data=data: d["model"].update(data=data))  # type: ignore[misc]
        found.append(analyze_run(LoadedRun.load(run)))
    pairs = match_runs(found[0], found[1])
    assert sum(len(compare_sides(*pair).outputs) for pair in pairs) == compared


def test_a_wish_that_is_none_is_damage_of_the_manifest(tmp_path: Path) -> None:
    """S1: the config in a manifest is a stranger's too."""
    run = write_run(tmp_path / "r", on_off_run())
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"] = {"content": {"analysis": {"margin": "wide"}}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputFileError, match=r"manifest\.json is damaged: .*analysis\.margin"):
        compare_within(analyze_run(LoadedRun.load(run)))
