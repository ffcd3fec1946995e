"""Two programs in one run: measured in turns, and kept apart wherever a run is read (N14)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etprof.analysis.assessment import Assessment, assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.cli.profile import name_programs
from etprof.history.ingest import read_run_directory
from etprof.run.load import Run
from etprof.run.manifest import load_manifest
from etprof.tables.findings import shown_findings
from tests.manifests import edit_manifest
from tests.world.host import Done, etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import SME2_KERNEL, Noise, Operator, RunSpec

CONVOLUTION = Operator("Convolution (NHWC, PF32) IGEMM #1", 100, 0, {SME2_KERNEL: 7})
SECOND = Operator("Convolution (NHWC, PF32) IGEMM #2", 50, 0, {SME2_KERNEL: 3})


def of(*operators: Operator, **more: Any) -> RunSpec:  # noqa: ANN401 - fields of the spec
    return RunSpec(operators=dict.fromkeys(("sme2", "sme1", "off"), operators), **more)


def write_program(folder: Path, name: str, content: bytes, **facts: object) -> Path:
    """A program with what its export says; without facts, a stranger's."""
    path = folder / f"{name}.pte"
    path.write_bytes(content)
    if facts:
        known = {
            "model": "m",
            "backend": "xnnpack",
            "precision": "fp32",
            "methods": {"forward": {}},
        }
        path.with_name(f"{name}.pte.json").write_text(json.dumps(known | facts))
    return path


def write_config(folder: Path, first: Path, **programs: Path) -> Path:
    """Each program with SME2 on and off."""
    names = ["", *programs]
    document = {
        "model": str(first),
        "output_root": str(folder / "run"),
        "programs": {name: {"model": str(path)} for name, path in programs.items()},
        "experiments": [
            {"name": f"{sme}_{name or 'first'}", "sme": sme, "program": name, "runs": 20}
            for sme in ("sme2", "off")
            for name in names
        ],
        "measurement": {"blocks": 6, "min_seconds": 0.001},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


def measure(folder: Path, config: Path, spec: RunSpec, *words: str) -> tuple[Done, SimTarget]:
    target = SimTarget(spec)
    with simulated_host(lambda *_, **__: target):
        return etprof(folder, "run", config, *words), target


@pytest.fixture
def turns(tmp_path: Path) -> tuple[Path, SimTarget]:
    """A run of two programs of one model, the second of which has one convolution more."""
    spec = of(CONVOLUTION, programs={"b": of(CONVOLUTION, SECOND)}, noise=Noise(block=0.01))
    first = write_program(tmp_path, "a", b"one", precision="fp32")
    second = write_program(tmp_path, "b", b"other", precision="fp16")
    done, target = measure(tmp_path, write_config(tmp_path, first, half=second), spec)
    assert done.exit_code == 0, done.stderr
    return tmp_path / "run", target


def assess(run: Path) -> Assessment:
    return assess_run(analyze_run(Run.load(run)))


def names_of(assessment: Assessment) -> set[str]:
    return {each.name for each in assessment.comparisons}


def test_programs_are_measured_in_turns(turns: tuple[Path, SimTarget]) -> None:
    """Each block has every program in every mode; the next begins with the last."""
    _, target = turns
    timing = [(each.model.stem, each.sme) for each in target.requests if not each.etdump][:24]
    blocks = [timing[i : i + 4] for i in range(0, 24, 4)]
    assert all(len({*block}) == 4 for block in blocks)
    assert len({tuple(block) for block in blocks}) > 1


def test_the_manifest_knows_each_program(turns: tuple[Path, SimTarget]) -> None:
    run, _ = turns
    manifest = load_manifest(run)
    assert manifest is not None
    models = {name: each.model for name, each in manifest.every_program.items()}
    assert {name: model.precision for name, model in models.items()} == {"": "fp32", "half": "fp16"}
    assert models[""].sha256 != models["half"].sha256
    assert {"export.json", "half.export.json"} <= manifest.files.keys()
    assert etprof(run.parent, "validate", run).exit_code == 0
    (run / "half.export.json").write_text("{}")
    assert "half.export.json" in etprof(run.parent, "validate", run).stdout


def test_programs_are_compared_in_each_mode_and_modes_of_each_program(
    turns: tuple[Path, SimTarget],
) -> None:
    assessment = assess(turns[0])
    assert names_of(assessment) == {
        "sme2_first → sme2_half", "off_first → off_half",
        "off_first → sme2_first", "off_half → sme2_half",
    }  # fmt: skip
    primary = assessment.primary_comparison
    assert primary is not None
    assert primary.name == "sme2_first → sme2_half"
    assert primary.latency is not None
    assert primary.latency.verdict == "slower"
    assert primary.latency.speed_up == pytest.approx(100 / 150, rel=0.05)


def test_kernels_feed_the_experiments_of_their_own_program(turns: tuple[Path, SimTarget]) -> None:
    """Both programs ran in SME2 with one thread: the counts of one are no evidence of the other."""
    run = Run.load(turns[0])
    counted = {
        each.name: [operator.name for operator in each.kernels.operators]
        for each in run.experiments
        if each.kernels
    }
    assert counted["sme2_first"] == [CONVOLUTION.label]
    assert counted["sme2_half"] == [CONVOLUTION.label, SECOND.label]


def test_the_history_has_a_series_for_each_program(turns: tuple[Path, SimTarget]) -> None:
    found = {each.experiment: each for each in read_run_directory(turns[0])}
    assert {each.precision for each in found.values()} == {"fp32", "fp16"}
    assert len({each.series for each in found.values()}) == 4
    assert len({each.revision for each in found.values()}) in {1, 2}
    programs = {name: each.artefacts["program"]["sha256"] for name, each in found.items()}
    assert programs["sme2_first"] == programs["off_first"] != programs["off_half"]
    assert all(each.variant is None for each in found.values())


def test_programs_of_equal_facts_have_series_by_their_names(tmp_path: Path) -> None:
    first = write_program(tmp_path, "a", b"one", precision="fp32")
    second = write_program(tmp_path, "b", b"other", precision="fp32")
    done, _ = measure(tmp_path, write_config(tmp_path, first, other=second), of(CONVOLUTION))
    assert done.exit_code == 0
    found = {each.experiment: each for each in read_run_directory(tmp_path / "run")}
    assert found["sme2_first"].variant is None
    assert found["sme2_other"].variant == "program other"
    assert found["sme2_first"].series != found["sme2_other"].series


def test_one_program_under_two_names_shares_what_was_counted(tmp_path: Path) -> None:
    first = write_program(tmp_path, "a", b"one", precision="fp32")
    spec = of(CONVOLUTION, noise=Noise(block=0.01))
    done, _ = measure(tmp_path, write_config(tmp_path, first, again=first), spec)
    assert done.exit_code == 0
    assessment = assess(tmp_path / "run")
    primary = assessment.primary_comparison
    assert primary is not None
    assert primary.name == "sme2_first → sme2_again"
    assert [check.parity.identical for check in primary.outputs] == [True]
    assert [each.aligned.match for each in primary.operators] == ["same"]


@pytest.mark.parametrize(
    ("second", "agrees"), [([1.0, 2.0, 3.0], True), ([1.0, 2.0, 3.001], True), ([3, 2, 1], False)]
)
def test_outputs_of_two_programs_are_held_against_each_other(
    tmp_path: Path, second: Sequence[float], agrees: bool
) -> None:
    """Two errors that each precision allows add up: 40 dB of fp16 beside 80 of fp32 are 40."""
    values = [np.array([*given] * 4, dtype=np.float32)[:10] for given in ([1.0, 2, 3], second)]
    outputs = [dict.fromkeys(("sme2", "sme1", "off"), each.tobytes()) for each in values]
    spec = of(CONVOLUTION, outputs=outputs[0], programs={"b": of(CONVOLUTION, outputs=outputs[1])})
    first = write_program(tmp_path, "a", b"one", precision="fp32")
    half = write_program(tmp_path, "b", b"other", precision="fp16")
    measure(tmp_path, write_config(tmp_path, first, half=half), spec)
    primary = assess(tmp_path / "run").primary_comparison
    assert primary is not None
    (check,) = primary.outputs
    assert (check.against, check.candidate) == ("sme2_first", "sme2_half")
    assert check.minimum_snr_db == pytest.approx(40, abs=0.01)
    assert primary.outputs_agree is agrees


def test_outputs_of_two_models_are_not_compared(tmp_path: Path) -> None:
    first = write_program(tmp_path, "a", b"one", model="m")
    other = write_program(tmp_path, "b", b"other", model="n")
    measure(tmp_path, write_config(tmp_path, first, n=other), of(CONVOLUTION))
    primary = assess(tmp_path / "run").primary_comparison
    assert primary is not None
    assert primary.outputs == ()


def test_a_cut_off_run_of_two_programs_is_resumed(tmp_path: Path) -> None:
    first = write_program(tmp_path, "a", b"one", precision="fp32")
    second = write_program(tmp_path, "b", b"other", precision="fp16")
    config = write_config(tmp_path, first, half=second)
    done, target = measure(tmp_path, config, of(CONVOLUTION))
    before = len(target.requests)
    (tmp_path / "run" / "sme2_half" / "b_sme2_half_t1.etdump").unlink()
    done, target = measure(tmp_path, config, of(CONVOLUTION), "--resume")
    assert done.exit_code == 0
    assert [each.model.stem for each in target.requests] == ["b"]
    assert before > 24
    second.write_bytes(b"changed")
    done, target = measure(tmp_path, config, of(CONVOLUTION), "--resume")
    assert (done.exit_code, target.requests) == (2, [])
    assert "program half: model:" in done.stderr


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda d: d["experiments"][0].update(program="hal"), "experiments.0.program: no program"),
        (
            lambda d: d["programs"].update(more=d["programs"]["half"]),
            "programs.more: no experiment",
        ),
        (
            lambda d: d["programs"]["half"].update(model="gone.pte"),
            "programs.half.model: {folder}/gone.pte",
        ),
    ],
)
def test_a_config_says_what_is_wrong_with_its_programs(
    tmp_path: Path,
    edit: Callable[[Any], None],
    told: str,
) -> None:
    path = write_program(tmp_path, "a", b"one")
    config = write_config(tmp_path, path, half=path)
    document = json.loads(config.read_text())
    edit(document)
    config.write_text(json.dumps(document))
    done = etprof(tmp_path, "config", "check", config)
    assert done.exit_code == 2
    assert told.format(folder=tmp_path) in done.stderr


def test_a_manifest_whose_experiment_has_no_program_is_damaged(
    turns: tuple[Path, SimTarget],
) -> None:
    run, _ = turns
    edit_manifest(run, lambda document: document["programs"].clear())
    done = etprof(run.parent, "analyze", run)
    assert done.exit_code == 4
    assert "not in programs" in done.stderr


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["toy_cnn_xnnpack_fp16"], [""]),
        (["toy_cnn_xnnpack_fp16", "toy_cnn_xnnpack_int8"], ["fp16", "int8"]),
        (["before", "after"], ["before", "after"]),
        (["m", "m"], ["baseline", "candidate"]),
        (["m", "m_new"], ["m", "m_new"]),
        (["net_fp16", "net_fp16_rewritten"], ["fp16", "fp16_rewritten"]),
    ],
)
def test_experiments_say_in_what_their_programs_differ(labels: list[str], names: list[str]) -> None:
    assert name_programs(labels) == names


def test_profile_measures_one_program_against_another(tmp_path: Path) -> None:
    first = write_program(tmp_path, "m_fp32", b"one", precision="fp32")
    second = write_program(tmp_path, "m_fp16", b"other", precision="fp16")
    target = SimTarget(of(CONVOLUTION, programs={"m_fp16": of(CONVOLUTION, SECOND)}))
    with simulated_host(lambda *_, **__: target):
        done = etprof(tmp_path, "profile", first, "--against", second, "--blocks", 6)
    assert done.exit_code == 0, done.stderr
    run = tmp_path / "out_m" / "runs" / "linux_against_m_fp16"
    assert assess(run).primary_comparison is not None
    assert names_of(assess(run)) >= {"linux_sme2_fp32 → linux_sme2_fp16"}
    assert "fp32 → fp16, 1 thread: slower" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("no_such_model:int8", "--against", "m.pte"), "'no_such_model'"),
        (("m.pte", "--against", "gone.pte"), "gone.pte does not exist"),
        (("m.pte", "--against", "n.pte", "--dtype", "fp32"), "--dtype is for a model's name"),
        (("toy_cnn:fp16", "--against", "toy_cnn:int8", "--dtype", "fp32"), "--dtype has no effect"),
    ],
)
def test_what_cannot_be_measured_in_turns_is_told(
    tmp_path: Path, words: Sequence[str], told: str
) -> None:
    write_program(tmp_path, "m", b"one")
    with simulated_host(lambda *_, **__: SimTarget()):
        done = etprof(tmp_path, "profile", *words)
    assert done.exit_code != 0
    assert told in done.stderr


def test_what_only_the_program_before_had_is_no_advice(tmp_path: Path) -> None:
    """Issue 18's trial: after a suggestion was applied, the same one was printed again."""
    outside = Operator("native_call_mean.out", 400, 1)
    spec = of(CONVOLUTION, outside, programs={"b": of(CONVOLUTION)})
    first = write_program(tmp_path, "a", b"one", precision="fp32")
    second = write_program(tmp_path, "b", b"other", precision="fp32")
    done, _ = measure(tmp_path, write_config(tmp_path, first, b=second), spec)
    assert done.exit_code == 0, done.stderr
    found = assess(tmp_path / "run")
    with_f5 = {
        entry.experiment for entry in found.findings for f in entry.findings if f.rule == "F5"
    }
    assert with_f5 == {"sme2_first", "off_first"}
    assert "F5" not in {finding.rule for finding in shown_findings(found)}
    assert not re.search(r"^F5 ", done.stdout, re.MULTILINE)


def write_report(program: Path, *nodes: Sequence[str]) -> None:
    """What the export says: a convolution and a ReLU of one module, by the delegate's nodes."""
    aten = [("conv", "convolution.default"), ("relu", "relu.default")]
    operators = [
        {"name": name, "operator": operator, "delegate": 0, "origin": {"module_path": "stem"}}
        for name, operator in aten
    ]
    kinds = {"conv": "Conv2d", "relu": "Clamp"}
    delegate = {
        "name": "d", "backend": "XnnpackBackend", "instruction": 0,
        "nodes": [{"kind": kinds[each[0]], "operators": list(each)} for each in nodes],
    }  # fmt: skip
    method = {"operators": operators, "delegates": [delegate]}
    document = {"schema_version": 1, "model": "m", "methods": {"forward": method}}
    program.with_name(f"{program.name}.delegation.json").write_text(json.dumps(document))


def test_merged_operators_are_one_row_with_both_sides_parts(tmp_path: Path) -> None:
    """N14: a ReLU of its own on one side, in the convolution on the other, under other numbers."""
    plain = Operator("Convolution (NHWC, F32) IGEMM #7", 90)
    clamp = Operator("Clamp (NC, F32) #1", 30)
    fused = Operator("Convolution (NHWC, F32) IGEMM #1", 100)
    spec = of(plain, clamp, programs={"b": of(fused)})
    first = write_program(tmp_path, "a", b"one", precision="fp32")
    second = write_program(tmp_path, "b", b"other", precision="fp32")
    write_report(first, ("conv",), ("relu",))
    write_report(second, ("conv", "relu"))
    done, _ = measure(tmp_path, write_config(tmp_path, first, fused=second), spec)
    assert done.exit_code == 0, done.stderr
    primary = assess(tmp_path / "run").primary_comparison
    assert primary is not None
    (change,) = primary.operators
    assert [row.label for row in change.aligned.before] == [plain.label, clamp.label]
    assert [row.label for row in change.aligned.after] == [fused.label]
    assert change.aligned.match == "merged"
    assert change.change is not None
    assert (change.change.baseline_ns, change.change.candidate_ns) == (120_000, 100_000)
    assert primary.times is not None
    waterfall = primary.times.waterfall
    assert waterfall is not None
    assert abs(waterfall.residual_ns) < 1e-3
    step = waterfall.steps[0]
    assert (step.label, step.delta_ns) == (
        f"{plain.label} + {clamp.label} → {fused.label}",
        -20_000,
    )


def test_operators_keep_their_modules_when_the_delegates_change(tmp_path: Path) -> None:
    """N14: the waterfall was `#1 → 0, #35 0 → …`: alignment was by order within delegate calls."""
    one = [Operator(f"Fully Connected (NC, F32) GEMM #{i}", 10 * i) for i in (1, 2, 3)]
    # The first is outside the delegate now, and all numbers and instructions are others.
    other = [
        Operator("native_call_linear.out", 50, 0),
        Operator(one[0].label, 20, 1),
        Operator(one[1].label, 30, 1),
    ]
    spec = of(*one, programs={"b": of(*other)})
    paths = [write_program(tmp_path, name, name.encode(), precision="fp32") for name in "ab"]
    calls_of: list[list[int | None]] = [[0, 0, 0], [None, 1, 1]]
    for path, calls in zip(paths, calls_of, strict=True):
        write_layers(path, calls)
    done, _ = measure(tmp_path, write_config(tmp_path, paths[0], b=paths[1]), spec)
    assert done.exit_code == 0, done.stderr
    primary = assess(tmp_path / "run").primary_comparison
    assert primary is not None
    times = [(e.change.baseline_ns, e.change.candidate_ns) for e in primary.operators if e.change]
    assert times == [(10_000, 50_000), (20_000, 20_000), (30_000, 30_000)]
    assert primary.times is not None
    assert primary.times.waterfall is not None
    assert abs(primary.times.waterfall.residual_ns) < 1e-3
    largest = primary.times.waterfall.largest(1)[0]
    assert largest.label == f"{one[0].label} → native_call_linear.out"


def write_layers(program: Path, calls: Sequence[int | None]) -> None:
    """What the export says of a linear operator in each of several modules."""
    operators = [
        {
            "name": f"linear_{i}", "operator": "linear.default", "delegate": call,
            "instruction": 0 if call is None else None, "origin": {"module_path": f"layer{i}"},
        }
        for i, call in enumerate(calls)
    ]  # fmt: skip
    delegates = [
        {
            "name": "d", "backend": "XnnpackBackend", "instruction": call,
            "nodes": [
                {"kind": "FullyConnected", "operators": [f"linear_{i}"]}
                for i, own in enumerate(calls) if own == call
            ],
        }
        for call in sorted({call for call in calls if call is not None})
    ]  # fmt: skip
    method = {"operators": operators, "delegates": delegates}
    document = {"schema_version": 1, "model": "m", "methods": {"forward": method}}
    program.with_name(f"{program.name}.delegation.json").write_text(json.dumps(document))
