"""Edges of run directories: names, prompts, manifests, what exports say, marks and instructions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import ValidationError

from etprof.base.errors import InputFileError, OutputError, TargetError, UsageError
from etprof.run.delegation import (
    Delegate,
    DelegateNode,
    DelegationReport,
    GraphOperator,
    MethodReport,
    Origin,
    SourceLine,
    find_method_report,
)
from etprof.run.directory import (
    BlockMetrics,
    GenerationMetrics,
    experiment_files,
    find_kind,
    find_set_aside,
    find_splits,
    has_summary,
    launch_suffix,
    name_of_program,
    refuse_file_of_run,
    remove_empty_folders,
    reserved,
    runs_folder,
    safe_name,
    suggest_run_directory,
)
from etprof.run.generation import parse_ids, plan_generation
from etprof.run.kernel_trace import read_steps
from etprof.run.load import LoadedLaunches, Run, find_own_run
from etprof.run.manifest import (
    Experiment,
    LaunchRecord,
    Manifest,
    MeasuredModel,
    is_untimed,
    resume_hint,
    save_manifest,
)
from etprof.run.program import (
    ExportManifest,
    MethodFiles,
    ScopeCatch,
    describe_program,
    find_decode_method,
    find_descriptions,
)
from etprof.run.runner_result import RunnerResult
from etprof.run.validation import ValidationFinding, worst_level
from etprof.targets.emulator.instructions import Functions, Log
from tests.world.results import result_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.run.validation import Level


@pytest.mark.parametrize(
    ("purpose", "number", "suffix"),
    [
        ("timing", 0, "_b00"), ("timing", 7, "_b07"), ("timing", 123, "_b123"),
        ("operators", 0, ""), ("operators", None, ""), ("operators", 1, "_o01"),
        ("operators", 12, "_o12"), ("kernels", None, "_kernels"), ("outputs", None, "_outputs"),
    ],
)  # fmt: skip
def test_only_the_first_operator_launch_has_no_suffix(
    purpose: str, number: int | None, suffix: str
) -> None:
    assert launch_suffix(purpose, number) == suffix


def test_operator_launches_are_joined_by_their_numbers(tmp_path: Path) -> None:
    names = ("m_t4", "m_t4_o01", "m_t4_o1234", "m_t4_o1", "m_t4_o12345", "m_o02", "m_t12_o03")
    (tmp_path / "off").mkdir()
    for name in names:
        (tmp_path / "off" / f"{name}.etdump").touch()
    splits = {
        first.stem: [(number, path.stem) for number, path in launches]
        for first, launches in find_splits(tmp_path).items()
    }
    assert splits == {
        "m_o02": [(0, "m_o02")],
        "m_t12": [(3, "m_t12_o03")],
        "m_t4": [(0, "m_t4"), (1, "m_t4_o01"), (1234, "m_t4_o1234")],
        "m_t4_o1": [(0, "m_t4_o1")],
        "m_t4_o12345": [(0, "m_t4_o12345")],
    }


@pytest.mark.parametrize(
    "name",
    ["../metrics.json", "off/../m.etdump", "off/m_outputs/deep/output_0.bin", "metrics.json.bak",
     "off/metrics.json", "a/b/c.etdump", "m_result.txt", "m.log", ".m.0123456", "off/m.tmp"],
)  # fmt: skip
def test_what_stands_elsewhere_or_is_named_otherwise_is_not_ours(name: str) -> None:
    assert find_kind(name) is None


def test_names_of_folders_and_descriptions_are_safe() -> None:
    assert runs_folder("a b", "linux", root=Path("x")) == Path("x/out_a_b/runs/linux")
    files = experiment_files(Path("r"), "a b", "off/on", 2)
    assert (files.name, files.file(".log")) == ("off_on", Path("r/off_on/a_b_off_on_t2.log"))
    assert safe_name("a+b-c.d_e.") == "a+b-c.d_e"
    assert name_of_program("export.json", "") == "export.json"
    assert name_of_program("export.json", "a/b") == "a_b.export.json"


def test_empty_folders_go_and_with_a_file_all_above_it_stay(tmp_path: Path) -> None:
    run = tmp_path / "out" / "runs" / "linux"
    (run / "off").mkdir(parents=True)
    (tmp_path / "note").touch()
    remove_empty_folders(run)
    assert [path.name for path in tmp_path.iterdir()] == ["note"]
    (run / "off").mkdir(parents=True)
    (run / "off" / "m.log").touch()
    remove_empty_folders(run)
    assert (run / "off" / "m.log").exists()
    remove_empty_folders(tmp_path / "note")
    assert (tmp_path / "note").exists()


def test_a_run_is_reserved_once_and_free_again(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    with reserved(run):
        assert run.is_dir()
        with pytest.raises(OutputError, match="another etprof is measuring into"), reserved(run):
            pass
    with reserved(run):
        pass


def test_earlier_runs_are_listed_from_a_moment_on_the_oldest_first(tmp_path: Path) -> None:
    for moment in (
        "20260101T000001Z",
        "20260101T000000Z_2",
        "20260101T000000Z",
        "20251231T235959Z",
    ):
        (tmp_path / f"linux_{moment}").mkdir()
    for name in ("linux_20260101", "linux_old_20260101T000000Z", "linuxx20260101T000000Z", "linux"):
        (tmp_path / name).mkdir()
    run = tmp_path / "linux"
    since = datetime(2026, 1, 1, tzinfo=UTC)
    names = [f"linux_20260101T00000{rest}" for rest in ("0Z", "0Z_2", "1Z")]
    assert [path.name for path in find_set_aside(run, since)] == names
    # The same moment by another clock on the wall.
    east = since.astimezone(timezone(timedelta(hours=9)))
    assert find_set_aside(run, east, limit=2) == [tmp_path / name for name in names[:2]]
    assert find_set_aside(run, since + timedelta(seconds=1)) == [tmp_path / names[2]]
    assert find_set_aside(tmp_path / "lost" / "linux", since) == []


def manifest(**fields: object) -> Manifest:
    return Manifest.model_validate({"platform": "linux", "model": {"name": "m"}, **fields})


def test_a_summary_is_of_the_run_that_it_names(tmp_path: Path) -> None:
    of_run = manifest(run_id="1")
    assert not has_summary(tmp_path, of_run)
    for document, is_of_it in (({"run_id": "1"}, True), ({"run_id": "2"}, False), ([], False)):
        (tmp_path / "analysis_summary.json").write_text(json.dumps(document))
        assert has_summary(tmp_path, of_run) is is_of_it
    (tmp_path / "analysis_summary.json").write_text("{}")
    assert has_summary(tmp_path, None)


def test_a_run_directory_is_suggested_from_one_or_two_levels_below(tmp_path: Path) -> None:
    assert suggest_run_directory(tmp_path, None).startswith("measure with `etprof profile MODEL`")
    for name in ("e", "d", "c/linux", "b", "a/deep/linux"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "manifest.json").touch()
    expected = ", ".join(str(tmp_path / name) for name in ("b", "c/linux", "d"))
    assert suggest_run_directory(tmp_path, None) == f"give a run directory: {expected}"
    (tmp_path / "manifest.json").touch()
    assert suggest_run_directory(tmp_path, None) == f"give a run directory: {expected}"
    (tmp_path / "metrics.json").touch()
    assert suggest_run_directory(tmp_path, None).startswith("give a run directory")
    assert suggest_run_directory(tmp_path, manifest()).startswith("metrics.json has its times")


def test_a_file_of_a_run_stands_for_no_run(tmp_path: Path) -> None:
    for name in ("report.html", "a.etdump", "note.txt"):
        (tmp_path / name).touch()
    refuse_file_of_run(tmp_path / "report.html")
    (tmp_path / "manifest.json").touch()
    with pytest.raises(InputFileError, match=r"is a file of a run; give the run directory"):
        refuse_file_of_run(tmp_path / "report.html")
    refuse_file_of_run(tmp_path / "a.etdump")
    refuse_file_of_run(tmp_path / "lost.html")


def test_a_block_takes_all_its_samples_times_its_batch() -> None:
    block = {
        "block": 0, "load": {}, "warmup_latency_ns": [9], "latency_ns": [2, 3], "memory": {},
    }  # fmt: skip
    assert BlockMetrics.model_validate(block).timed_ns == 5
    assert BlockMetrics.model_validate({**block, "inferences_per_sample": 4}).timed_ns == 20


@pytest.mark.parametrize(
    ("rates", "latencies", "is_so"),
    [([], [], True), ([5.0], [0, 7], True), ([5.0], [], False), ([], [7], False), ([5.0], [0], False)],
)  # fmt: skip
def test_rates_and_latencies_of_tokens_belong_together(
    rates: list[float], latencies: list[int], *, is_so: bool
) -> None:
    document = {
        "time_to_first_token_ns": [4], "prefill_tokens_per_second": [2.0],
        "decode_tokens_per_second": rates, "token_latency_ns": latencies,
    }  # fmt: skip
    if is_so:
        assert GenerationMetrics.model_validate(document).token_latency_ns == latencies
        return
    with pytest.raises(ValidationError, match="token_latency_ns"):
        GenerationMetrics.model_validate(document)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("7", (7,)), ("1,,2\n3", (1, 2, 3)), (f"{10**18 - 1}", (10**18 - 1,)), (f"{10**18}", None),
        ("-1", None), ("1 x", None), (",", None), ("1.5", None),
    ],
)  # fmt: skip
def test_ids_are_whole_numbers_of_at_most_18_digits(text: str, ids: tuple[int, ...] | None) -> None:
    assert parse_ids(text) == ids


def test_a_prompt_of_a_length_counts_to_31_and_begins_again() -> None:
    ids = plan_generation(new_tokens=1, prompt_length=33).prompt_tokens
    assert ids == (*range(1, 32), 1, 2)
    planned = plan_generation(
        new_tokens=3, prompt_tokens=(0,), prefill_method="p", decode_method="d"
    )
    assert (planned.new_tokens, planned.prompt_tokens) == (3, (0,))
    assert (planned.prefill_method, planned.decode_method) == ("p", "d")
    assert (planned.prompt, planned.tokenizer) == (None, None)
    with pytest.raises(UsageError, match="after one prompt"):
        plan_generation(new_tokens=1, prompt_length=1, prompt="x", tokenizer=Path("t.json"))


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        (None, "measure again: nobody knows its config"),
        ({"path": None}, "measure again: nobody knows its config"),
        ({"unit": "u", "content": {}}, "`etprof bench MATRIX --resume` continues it"),
        ({"content": {}}, "`etprof run --from-manifest r --resume` continues it"),
    ],
)
def test_an_interrupted_run_says_how_it_goes_on(config: dict[str, Any] | None, hint: str) -> None:
    assert resume_hint(manifest(config=config), Path("r")) == hint


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"schema_version": 1, "platform": "emulator"}, True),
        ({"schema_version": 2, "platform": "emulator"}, False),
        ({"schema_version": 1, "platform": "linux"}, False),
        ({"times_are_meaningful": False}, True),
        ({"times_are_meaningful": None}, False),
    ],
)
def test_no_time_counts_where_a_file_says_so_or_an_old_emulator_ran(
    document: dict[str, object], *, expected: bool
) -> None:
    assert is_untimed(document) is expected


@pytest.mark.parametrize(
    ("fields", "is_lost"),
    [
        ({}, False), ({"run_id": "1"}, True), ({"checksum": "1"}, True), ({"runners": []}, True),
        ({"resumptions": []}, True), ({"files": {"a": "0"}}, False),
        ({"files": {"a": {"kind": "log", "sha256": "0"}}}, True),
        ({"launches": [{"experiment": "e", "purpose": "timing"}]}, False),
        ({"launches": [{"experiment": "e", "purpose": "timing", "asked": []}]}, True),
        ({"launches": [{"experiment": "e", "purpose": "timing", "runner_sha256": "0"}]}, True),
    ],
)  # fmt: skip
def test_an_old_manifest_that_says_what_only_later_ones_say_has_lost_its_seal(
    fields: dict[str, object], *, is_lost: bool
) -> None:
    assert manifest(schema_version=1, **fields).has_lost_its_seal is is_lost
    assert not manifest(**fields).has_lost_its_seal


def test_runs_stand_beside_each_other_by_cpu_platform_and_precision() -> None:
    cpu = {"architecture": "aarch64", "model_name": "X", "logical_cores": 8, "features": {}}
    of_run = manifest(cpu=cpu, model={"name": "m", "precision": "fp16"})
    assert of_run.kind == ("linux", ("X", "aarch64"), "fp16")
    assert manifest().kind == ("linux", None, None)
    runner = {"version": "1", "build": {"build_type": "Release"}}
    assert (manifest(runner=runner).build_type, manifest().build_type) == ("Release", None)


def test_a_program_is_its_file_and_its_weights() -> None:
    model = MeasuredModel.model_validate({"name": "m", "sha256": "a", "data": {"sha256": "b"}})
    assert model.content == "a b"
    assert model.model_copy(update={"data": None}).content == "a"
    assert model.model_copy(update={"sha256": None}).content is None


def test_old_words_of_purposes_are_today_s_and_the_only_split_has_a_number() -> None:
    numbers = {
        (old, record.purpose, record.block)
        for old in ("etdump", "xnntrace", "operators", "timing", "trace")
        for record in [LaunchRecord.model_validate({"experiment": "e", "purpose": old})]
    }
    assert numbers == {
        ("etdump", "operators", 0), ("xnntrace", "kernels", None), ("operators", "operators", 0),
        ("timing", "timing", None), ("trace", "kernels", None),
    }  # fmt: skip
    later = {"experiment": "e", "purpose": "operators", "block": 3}
    assert LaunchRecord.model_validate(later).block == 3


def test_an_experiment_of_a_config_has_these_defaults() -> None:
    usual = Experiment(name="e")
    assert (usual.iterations, usual.warmup, usual.threads, usual.folder) == (10, 10, 1, "e")
    assert (usual.sme, usual.mode, usual.cpus) == ("auto", "timing", ())
    assert Experiment(name="e_t4", group="e").folder == "e"
    by_mask = Experiment.model_validate({"name": "e", "cpu_affinity": "0-2,5"})
    assert by_mask.cpus == (0, 1, 2, 5)
    for fields in ({"iterations": 0}, {"warmup": -1}, {"cpus": [10_000]}, {"warmup_seconds": 0}):
        with pytest.raises(ValidationError):
            Experiment.model_validate({"name": "e", **fields})
    assert Experiment.model_validate({"name": "e", "warmup": 0, "iterations": 1}).warmup == 0


LINE = SourceLine(file="/src/net.py", line=14)


@pytest.mark.parametrize(
    ("origin", "location"),
    [
        (Origin(module_path="features.2", source=LINE), "features.2 (net.py:14)"),
        (Origin(source=LINE), "net.py:14"), (Origin(module_path="head"), "head"), (Origin(), None),
    ],
)  # fmt: skip
def test_an_operator_is_found_by_module_and_line(origin: Origin, location: str | None) -> None:
    assert origin.location == location


def operator(held_bytes: int | None, kind: str = "add.Tensor", **fields: Any) -> GraphOperator:  # noqa: ANN401
    return GraphOperator(name="n", operator=kind, held_bytes=held_bytes, **fields)


def test_a_step_reads_weights_and_each_cache_once() -> None:
    quantization = operator(None, is_quantization=True)
    caches = [operator(100, kind) for kind in ("index_put.default", "index_copy", "update_cache")]
    report = MethodReport(operators=(operator(7), operator(0), quantization, *caches))
    assert report.step_bytes is not None
    assert (report.step_bytes.weights, report.step_bytes.caches) == (7, 300)
    assert report.step_bytes.total == 307
    for operators in ((), (quantization,), (operator(7), operator(None))):
        assert MethodReport(operators=operators).step_bytes is None


def test_a_report_has_data_flow_where_anything_says_who_reads_whom() -> None:
    node = DelegateNode(kind="Add", sme2_rewrites=("a", "b"))
    delegate = Delegate(name="d", backend="b", nodes=(node,))
    plain = MethodReport(operators=(operator(1, rewrites=("a", "c")),), delegates=(delegate,))
    assert not plain.has_data_flow
    assert MethodReport(operators=(operator(1, inputs=("x",)),)).has_data_flow
    written = delegate.model_copy(update={"nodes": (node.model_copy(update={"output": 0}),)})
    assert MethodReport(delegates=(written,)).has_data_flow
    without = plain.without_rewrites({"a"})
    assert without.operators[0].rewrites == ("c",)
    assert without.delegates[0].nodes[0].sme2_rewrites == ("b",)


def test_the_report_of_the_measured_method_is_read(tmp_path: Path) -> None:
    methods = {
        name: MethodReport(operators=(operator(1),) * n)
        for n, name in enumerate(("forward", "two"))
    }
    text = DelegationReport(model="m", methods=methods).model_dump_json()
    assert find_method_report(tmp_path, None) is None
    (tmp_path / "delegation.json").write_text(text)
    report = find_method_report(tmp_path, None)
    assert report == methods["forward"]
    of_two = manifest(model={"name": "m", "method": "two"})
    assert find_method_report(tmp_path, of_two) == methods["two"]
    # Only a run of etprof 0.1 is looked for where the export puts it.
    artifacts = tmp_path / "out" / "artifacts"
    run = tmp_path / "out" / "runs" / "linux"
    for folder in (artifacts, run):
        folder.mkdir(parents=True)
    (artifacts / "m.pte.delegation.json").write_text(text)
    model = {"name": "m", "path": "/lost/m.pte", "method": "two"}
    assert find_method_report(run, manifest(model=model)) is None
    assert find_method_report(run, manifest(schema_version=1, model=model)) == methods["two"]


def exported(**fields: object) -> ExportManifest:
    document = {"model": "net", "backend": "xnnpack", "precision": "fp32", **fields}
    return ExportManifest.model_validate(document)


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ({"origin": "/x/net.py", "asked": "zoo:net"}, "zoo:net"), ({"origin": "a/b.pt2"}, "a/b.pt2"),
        ({"origin": "hf:bert"}, "hf:bert"), ({"origin": "torchvision"}, "net"),
        ({"origin": "package: net"}, "net"), ({"origin": "/etprof/models/net/model.py"}, "net"),
        ({"origin": "net/model.py"}, "net/model.py:net"), ({"origin": "x/net.py"}, "x/net.py"),
        ({"origin": "/x/nets.py"}, "/x/nets.py:net"), ({}, "net"),
    ],
)  # fmt: skip
def test_a_model_is_named_as_commands_take_it(source: dict[str, str], asked: str) -> None:
    assert exported(source=source).asked_as == asked


def test_a_command_has_the_model_with_its_inputs_and_weights() -> None:
    options = {"example_inputs": ["1x3", {"input": "a.npy"}, 7], "weights": {"path": "w.pt"}}
    assert exported(options=options).model_words == (
        "net", "--input", "1x3", "--input", "a.npy", "--weights", "w.pt",
    )  # fmt: skip
    assert exported(options={"example_inputs": "1x3", "weights": {}}).model_words == ("net",)


@pytest.mark.parametrize(
    ("fields", "missed"),
    [
        ({"operators": 0}, "the model computes and no later part decides on"),
        ({"operators": 3, "quantized": 0}, "the quantiser takes"),
        ({"operators": 3, "quantized": 1}, None), ({"operators": 3}, None),
        ({"operators": 3, "quantized": 0, "scope": "encoder.*=fp32"}, None),
    ],
)  # fmt: skip
def test_a_scope_that_caught_nothing_says_of_what(
    fields: dict[str, Any], missed: str | None
) -> None:
    assert ScopeCatch(**{"scope": "encoder.*=int8", **fields}).missed == missed


def write_export(folder: Path, **method: object) -> Path:
    """Writes a program with one input, a reference and a delegation report."""
    model = folder / "net_fp32.pte"
    tensor = {"index": 0, "dtype": "float32", "shape": [1, 3], "path": "input_0.bin"}
    files = {"inputs": [tensor], "references": [{**tensor, "path": "ref.bin"}], **method}
    methods = {"forward": files, "decode": {"inputs": [tensor, tensor]}}
    model.write_bytes(b"pte")
    text = exported(methods=methods).model_dump_json()
    (folder / "net_fp32.pte.json").write_text(text)
    return model


def test_a_program_is_described_by_its_export(tmp_path: Path) -> None:
    steps = [{"step": 2}, {"step": 3}]
    further = [{"index": 0, "dtype": "float32", "path": "steps.bin"}]
    model = write_export(tmp_path, steps=steps, step_inputs=further)
    program = describe_program(model)
    assert (program.name, program.label, program.method) == ("net", "net_fp32", "forward")
    assert (program.inputs, program.shapes) == ((tmp_path / "input_0.bin",), ("1x3",))
    assert (program.references, program.steps) == ((tmp_path / "ref.bin",), 3)
    assert (program.inputs_of_steps, program.data) == ((tmp_path / "steps.bin",), None)
    given = tmp_path / "mine.bin"
    given.touch()
    model.with_suffix(".ptd").touch()
    program = describe_program(model, inputs=(given,))
    assert (program.inputs, program.shapes, program.references) == ((given,), (), ())
    assert (program.steps, program.inputs_of_steps) == (1, ())
    assert program.data == model.with_suffix(".ptd")
    assert describe_program(model, data=given).data == given
    assert describe_program(model, method="decode").shapes == ("1x3", "1x3")
    with pytest.raises(UsageError, match="no method 'x'; it has decode, forward; choose"):
        describe_program(model, method="x")


def test_a_method_that_decodes_is_chosen_unless_another_is(tmp_path: Path) -> None:
    model = write_export(tmp_path)
    assert find_decode_method(model, None) == "decode"
    assert find_decode_method(model, "forward") == "forward"
    stranger = tmp_path / "stranger.pte"
    stranger.touch()
    assert find_decode_method(stranger, None) is None
    assert (describe_program(stranger).method, describe_program(stranger).steps) == ("forward", 1)
    assert find_descriptions(model, "b/c") == {"b_c.export.json": tmp_path / "net_fp32.pte.json"}
    (tmp_path / "net_fp32.pte.delegation.json").touch()
    assert list(find_descriptions(model)) == ["delegation.json", "export.json"]


def test_the_first_inference_stands_before_the_later_ones() -> None:
    files = MethodFiles.model_validate({"steps": [{"step": 2}]})
    assert [step.step for step in files.every_step] == [1, 2]


def test_an_etdump_belongs_to_the_run_of_its_folder_or_the_one_above(tmp_path: Path) -> None:
    save_manifest(tmp_path, manifest(run_id="7"))
    for name, is_of_it in (("m.etdump", True), ("off/m.etdump", True), ("off/a/m.etdump", False)):
        of_run = find_own_run(tmp_path / name)
        assert (of_run is not None and of_run.run_id == "7") is is_of_it


def test_what_is_in_force_is_told_by_metrics_then_by_the_runner() -> None:
    document = result_document(1000) | {
        "threads": {"in_force": 3}, "sme": {"in_force": "sme2", "svl_bits": 256},
    }  # fmt: skip
    launches = LoadedLaunches("e", result=RunnerResult.model_validate(document))
    assert (launches.threads, launches.sme, launches.svl_bits) == (3, "sme2", 256)
    nothing = LoadedLaunches("e")
    assert (nothing.threads, nothing.sme, nothing.svl_bits) == (None, None, None)
    assert (nothing.output_step, nothing.outputs) == (1, {})
    assert not Run(Path("r"), is_directory=True, experiments=(), others=(nothing,)).is_reportable


@pytest.mark.parametrize(
    ("levels", "worst"),
    [([], "ok"), (["ok", "note"], "note"), (["damaged", "incomplete", "wrong"], "damaged"),
     (["incomplete", "wrong"], "incomplete"), (["note", "wrong", "ok"], "wrong")],
)  # fmt: skip
def test_the_gravest_of_what_was_checked_counts(levels: list[Level], worst: str) -> None:
    assert worst_level([ValidationFinding(level, "x") for level in levels]) == worst


def functions() -> Functions:
    """A library of 8 instructions from 0x1000 on: two functions, the second one from 0x1010 on."""
    numbers = np.array([0] * 4 + [1] * 4, np.int32)
    return Functions(0x1000, ("one", "two"), numbers, execute=0x1000, clock=0x101C)


def log_of(base: int, addresses: Sequence[int]) -> bytes:
    rows = (
        f"Trace 0: 0x7f [{0:016x}/{base + address:016x}/{0:08x}/{0:08x}] \n"
        for address in addresses
    )
    return "".join(rows).encode()


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_instructions_are_counted_between_readings_of_the_clock(size: int) -> None:
    base = 0x7FFFF000
    # Before any call; a call with 3 instructions to begin with, and two operators.
    addresses = [0x1004, 0x1000, 0x1004, 0x1010, 0x101C, 0x1014, 0x101C, 0x1008, 0x1008]
    log, text = Log(functions(), base), log_of(base, addresses)
    for start in range(0, len(text), size):
        log.feed(text[start : start + size])
    assert [[counts.tolist() for counts in call] for call in log.calls] == [
        [[2, 1], [0, 2], [2, 1]]
    ]
    assert log.flags[-1] == "0x80000000+0x20"
    assert functions().name(np.array([2, 5])) == {"two": 5, "one": 2}
    assert list(functions().name(np.array([0, 5]))) == ["two"]


@pytest.mark.parametrize("address", [0xFFC, 0x1020])
def test_an_instruction_outside_of_the_library_is_refused(address: int) -> None:
    with pytest.raises(TargetError, match="has instructions outside of"):
        Log(functions(), 0).feed(log_of(0, [address]))
    Log(functions(), 0).feed(log_of(0, [0x1000, 0x101C]))


def test_marks_are_read_as_steps_works_and_names() -> None:
    #        0123456789
    steps = read_steps("EDBPpPpBBdNNEPpee", (9, 5, 6, 7))
    delegate, kernel = steps
    assert (delegate.label, delegate.names) == (None, ((5, 10), (6, 11)))
    works = [(work.begin, work.start, work.end, work.border) for work in delegate.works]
    assert works == [(2, 3, 6, 7), (7, 8, 8, 8)]
    assert [work.is_parallel for work in (*delegate.works, *kernel.works)] == [True, False, True]
    assert (kernel.label, kernel.works[0].begin, kernel.works[0].end) == (7, 12, 15)
    assert (kernel.works[0].start, kernel.works[0].border) == (12, 15)
