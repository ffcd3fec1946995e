"""What a run directory says, as rows of a history: devices, failures, revisions, metrics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.base.errors import InputFileError
from etprof.history.ingest import read_run_directory
from etprof.history.schema import make_run, record_of
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.manifest import seal
from etprof.run.program import Program
from tests.manifests import edit_manifest
from tests.measured_runs import START, STEADY, MeasuredRun, write_measured
from tests.unit.test_load import watched
from tests.world.sim_target import SimTarget
from tests.world.spec import plain

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.history.schema import Run


def read_one(folder: Path, run: MeasuredRun, device: str | None = None) -> Run:
    (document,) = read_run_directory(write_measured(folder, run), device=device)
    return document


def test_metrics_are_medians_over_blocks(tmp_path: Path) -> None:
    document = read_one(tmp_path / "run", MeasuredRun(blocks_us=(3, 1, 2, 8, 5, 4, 7, 6)))
    metrics = {metric.name: metric for metric in document.metrics}
    assert sorted(metrics) == [
        "first_inference_ns", "latency_mean_ns", "latency_ns", "latency_trimmed_mean_ns",
        "load_ns", "peak_rss_bytes",
    ]  # fmt: skip
    latency = metrics["latency_ns"]
    assert latency.value == 4500
    # Between the outermost launches, which hold 99 %, and the next, which hold 93 %.
    assert (latency.low, latency.high) == pytest.approx((1935.64, 7064.36), abs=0.01)
    assert latency.samples == (3000, 1000, 2000, 8000, 5000, 4000, 7000, 6000)
    assert (latency.count, latency.unit, latency.higher_is_better) == (8, "ns", False)
    assert metrics["load_ns"].value == 91_003.5


def test_a_real_run_directory_is_read(tmp_path: Path) -> None:
    model = tmp_path / "m.pte"
    model.write_bytes(b"program")
    measure(
        program=Program(name="m", label="m", model=model),
        target=SimTarget(plain()),
        run=tmp_path / "run",
        planned=plan(
            [Experiment(name="off", sme="off"), Experiment(name="cpus", cpus=(2, 3))],
            Settings(blocks=2),
            SimTarget(plain()),
        ),
        progress=lambda *_: None,
    )
    off, cpus = read_run_directory(tmp_path / "run")
    assert (off.status, off.variant, cpus.variant) == ("ok", None, "CPUs 2,3")
    assert off.series != cpus.series
    assert off.artefacts["program"]["size_bytes"] == 7
    assert "off/m_off_t1.etdump" in off.artefacts
    assert not any("cpus" in name or "_b00_result" in name for name in off.artefacts)
    assert off.categories


@pytest.mark.parametrize(
    ("platform", "device", "kind", "soc"),
    [
        ("linux", "Known CPU, 2 cores, Linux", "local", "Known CPU"),
        ("android", "Acme Phone 5 (R5CT1234)", "android", "Acme X1"),
        ("emulator", "qemu-aarch64 10.1 max", "emulator", None),
    ],
)
def test_devices(tmp_path: Path, platform: str, device: str, kind: str, soc: str | None) -> None:
    document = read_one(tmp_path / "run", MeasuredRun(platform=platform))
    assert (document.device, document.device_kind, document.soc) == (device, kind, soc)
    assert document.representative == (platform != "emulator")
    named = read_one(tmp_path / "named", MeasuredRun(platform=platform), device="rack 3")
    assert named.device == "rack 3"
    assert named.series != document.series


@pytest.mark.parametrize("serial", ["127.0.0.1:5555", "emulator-5554"])
def test_a_passing_serial_does_not_name_a_device(tmp_path: Path, serial: str) -> None:
    target = {"manufacturer": "Acme", "model": "Phone 5", "serial": serial}
    document = read_one(tmp_path / "run", MeasuredRun(platform="android", extra={"target": target}))
    assert document.device == "Acme Phone 5"


def test_a_run_that_was_cut_off_is_a_failure(tmp_path: Path) -> None:
    document = read_one(tmp_path / "run", MeasuredRun(status="running"))
    assert (document.status, document.failure) == ("failed", "not measured: the run is running")


def test_a_failed_experiment_stays_in_its_series(tmp_path: Path) -> None:
    measured = read_one(tmp_path / "good", MeasuredRun())
    failed = read_one(tmp_path / "bad", MeasuredRun(failing={"off": "lost\nthe device"}))
    assert failed.failure == "timing: lost\\nthe device"
    assert failed.series == measured.series


@pytest.mark.parametrize(
    ("features", "mode"),
    [({"sme": True, "sme2": True}, "sme2"), ({"sme": True}, "sme1"), ({"avx2": True}, "off")],
)
def test_automatic_sme_of_a_failure_is_what_the_cpu_gives(
    tmp_path: Path, features: dict[str, bool], mode: str
) -> None:
    cpu = {"architecture": "x", "logical_cores": 2, "features": features}
    run = MeasuredRun(failing={"off": "lost"}, extra={"cpu": cpu})
    assert read_one(tmp_path / "run", run).sme_mode == mode


def test_repetitions_have_the_same_revision(tmp_path: Path) -> None:
    run = MeasuredRun()
    other_commit = {"commit": "d" * 40, "branch": "main", "dirty": False}
    variants = {
        "first": run,
        "again": replace(run, minute=5),
        "program": replace(run, program="e" * 64),
        "commit": replace(run, git=other_commit),
        "pins": replace(run, extra={"pins": {"executorch": "1.6.0"}}),
        "no git": replace(run, git=None),
    }
    found = {n: read_one(tmp_path / n, entry).revision for n, entry in variants.items()}
    assert found["first"] == found["again"]
    assert len(set(found.values())) == len(found) - 1
    assert None not in found.values()


def test_other_weights_are_another_revision(tmp_path: Path) -> None:
    """A-D23: the weights in a file of their own were left out of what a run is of."""
    found: list[str | None] = []
    for weights in ("1", "2", "2"):
        run = write_measured(tmp_path / str(len(found)), MeasuredRun())
        data = {"path": "w.ptd", "sha256": weights * 64, "size_bytes": 4}
        edit_manifest(run, lambda d, data=data: d["model"].update(data=data))  # type: ignore[misc]
        found += [entry.revision for entry in read_run_directory(run)]
    first, second, again = found
    assert first != second
    assert second == again


@pytest.mark.parametrize("dirty", [True, None])
def test_changed_files_leave_the_revision_open(tmp_path: Path, dirty: bool | None) -> None:
    git = {"commit": "c" * 40, "branch": "main", "dirty": dirty}
    document = read_one(tmp_path / "run", MeasuredRun(git=git))
    assert document.revision is None
    assert document.git_dirty == dirty


def test_generations_of_other_lengths_are_other_series(tmp_path: Path) -> None:
    settings = {"generation": {"prompt_tokens": [1, 2, 3], "new_tokens": 16}}
    run = MeasuredRun(extra={"settings": settings})
    document = read_one(tmp_path / "run", run)
    assert document.variant == "3 + 16 tokens"


def test_token_rates_are_metrics_where_higher_is_better(tmp_path: Path) -> None:
    run = write_measured(tmp_path / "run", MeasuredRun())
    path = run / "metrics.json"
    metrics: dict[str, Any] = json.loads(path.read_text())
    for block in metrics["experiments"]["off"]["blocks"]:
        block["generation"] = {
            "time_to_first_token_ns": [5000, 7000],
            "prefill_tokens_per_second": [100.0],
            "decode_tokens_per_second": [20.0, 30.0],
            "token_latency_ns": [30_000_000, 50_000_000],
        }
    path.write_text(json.dumps(metrics))
    (document,) = read_run_directory(run)
    found = {metric.name: metric for metric in document.metrics}
    decode = found["decode_tokens_per_second"]
    assert (decode.value, decode.unit, decode.higher_is_better) == (25.0, "1/s", True)
    assert found["time_to_first_token_ns"].value == 6000


def test_a_damaged_split_does_not_lose_the_run(tmp_path: Path) -> None:
    run = write_measured(tmp_path / "run", MeasuredRun())
    (run / "off").mkdir()
    (run / "off" / "toy_off_t1.etdump").write_bytes(b"not an ETDump")
    (document,) = read_run_directory(run)
    assert document.status == "ok"
    assert document.failure is not None
    assert document.failure.startswith("per-operator breakdown: ")
    assert document.metrics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"created_at": "yesterday"}, r"manifest.json is damaged: created_at: not a time"),
        ({"platform": None}, r"manifest.json is damaged: platform: "),
        ({"experiments": []}, r"has no timed experiment"),
    ],
)
def test_a_damaged_manifest_is_named(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    measured = MeasuredRun(failing={"off": "so that nothing is measured"})
    run = write_measured(tmp_path / "run", measured)
    edit_manifest(run, lambda document: document.update(change))
    with pytest.raises(InputFileError, match=message):
        read_run_directory(run)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"is not a run directory: no manifest.json"):
        read_run_directory(tmp_path)
    with pytest.raises(InputFileError, match=r"nowhere is not a run directory; `etprof profile"):
        read_run_directory(tmp_path / "nowhere")


def first_schema(folder: Path, platform: str = "linux", **facts: Any) -> Path:  # noqa: ANN401
    """A run as etprof 0.1 left it: files that no class of today writes."""
    blocks = [
        {
            "block": number, "first_inference_ns": round(latency * 3000),
            "load": {"program_ns": 1000, "method_ns": 90_000 + number},
            "warmup_latency_ns": [round(latency * 1500)],
            "latency_ns": [round(latency * 1000 * factor) for factor in (0.99, 1.0, 1.01)],
            "memory": {"peak_rss_bytes": 2**21 + 4096 * (number % 2)},
        }
        for number, latency in enumerate(STEADY)
    ]  # fmt: skip
    manifest = {
        "schema_version": 1, "status": "finished", "created_at": START.isoformat(),
        "platform": platform, "model": {"name": "toy_cnn", "sha256": "b" * 64},
        "experiments": [{"name": "off", "sme": "auto", "threads": 1}], "launches": [], **facts,
    }  # fmt: skip
    experiments = {"off": {"sme": "off", "threads": 1, "blocks": blocks}}
    metrics = {"schema_version": 1, "times_are_meaningful": True, "experiments": experiments}
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if not facts:
        (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


PLANNED = {
    "name": "off", "sme": "auto", "threads": 4, "cpus": [1, 2], "launcher": ["taskset"],
    "iterations": 20, "group": "g",
}  # fmt: skip
LAUNCH = {
    "experiment": "off", "purpose": "etdump", "block": 0, "duration_s": 0.1,
    "started_at": START.isoformat(), "error": "lost\nit",
}  # fmt: skip


@pytest.mark.parametrize(
    ("platform", "facts", "key"),
    [
        ("linux", {}, "27e6f4b9b03fd56fc87d9c3d4543b803bd576ed2d4abd1646e53b8e4ee1867bf"),
        ("emulator", {}, "45dda318162cefb623eb1dd565196b6659c9416d0bb3befb2bb4b93e427c6031"),
        (
            "linux",
            {"launches": [LAUNCH], "experiments": [PLANNED]},
            "4a478fd3847c39fd57590058023c728834366e22033c8d82d0d38050451ace44",
        ),
    ],
)
def test_a_run_of_the_first_schema_keeps_its_key(
    platform: str, facts: dict[str, Any], key: str, tmp_path: Path
) -> None:
    """The keys that stores of earlier editions have: adding the run once more changes nothing."""
    (run,) = read_run_directory(first_schema(tmp_path / "run", platform, **facts))
    assert run.key == key


def test_a_run_keeps_its_key(tmp_path: Path) -> None:
    """B-C18: of a run with an identity, its launches and all that metrics.json says of it count."""
    run = first_schema(tmp_path / "run")
    document = {**json.loads((run / "manifest.json").read_text()), "run_id": "1"}
    (run / "manifest.json").write_bytes(seal({**document, "schema_version": 2}))
    (found,) = read_run_directory(run)
    assert found.key == "8543b0871ab170e43ab7c3361f6f01fbed4369f71161c8a47a90600e542dadd7"


def test_the_launches_of_an_experiment_are_part_of_its_key_and_no_others(tmp_path: Path) -> None:
    """A resume that repeats launches of one experiment makes another run of that one alone."""

    def key_with(launch: dict[str, Any], folder: str) -> str:
        facts = {"run_id": "1", "launches": [launch], "experiments": [PLANNED]}
        return read_one(tmp_path / folder, MeasuredRun(extra=facts)).key

    own, later = key_with(LAUNCH, "own"), key_with({**LAUNCH, "block": 7}, "later")
    others = [
        key_with({**LAUNCH, "experiment": "x", "block": block}, f"x{block}") for block in (1, 7)
    ]
    assert own != later
    assert others[0] == others[1] != own


def test_a_run_is_known_by_its_own_identity(tmp_path: Path) -> None:
    """A resume that finds all done writes the manifest anew; another run is another one."""
    one = read_one(tmp_path / "one", MeasuredRun(extra={"run_id": "1"}))
    anew = read_one(tmp_path / "anew", MeasuredRun(extra={"run_id": "1", "command": ["x"]}))
    other = read_one(tmp_path / "other", MeasuredRun(extra={"run_id": "2"}))
    assert one.key == anew.key != other.key
    assert one.manifest_run_id == "1"
    assert one.manifest_sha256 != anew.manifest_sha256


@pytest.mark.parametrize("blocks", [STEADY, ()], ids=["of 0.1", "of today"])
def test_an_untimed_run_leaves_no_figure(tmp_path: Path, blocks: tuple[float, ...]) -> None:
    """B-D4, B-D10, I2: an emulator's blocks became figures; a run without any, a failure."""
    untimed = read_one(tmp_path / "run", MeasuredRun(platform="emulator", blocks_us=blocks))
    assert (untimed.status, untimed.failure, untimed.representative) == ("ok", None, False)
    assert (untimed.metrics, untimed.categories, untimed.raw) == ([], {}, None)


def test_the_target_s_policy_has_the_last_word(tmp_path: Path) -> None:
    """B-D10: a stranger's export may call an emulator's times representative."""
    timed = record_of(read_one(tmp_path / "run", MeasuredRun())).model_dump()
    assert timed["metrics"]
    claimed = make_run({**timed, "device_kind": "emulator", "representative": True})
    assert not claimed.representative
    assert (claimed.metrics, claimed.categories, claimed.raw) == ([], {}, None)


def test_a_run_directory_is_read_once(tmp_path: Path) -> None:
    """B-D18: the manifest and the metrics were opened three times each."""
    run = write_measured(tmp_path / "run", MeasuredRun())
    with watched(run) as opened:
        read_run_directory(run)
    assert opened == {"manifest.json": 1, "metrics.json": 1}


def test_what_tells_experiments_apart_is_told_in_full(tmp_path: Path) -> None:
    planned = {
        "cpus": [1, 2], "runner": "mine", "launcher": ["nice", "-n", "5"],
        "extra_arguments": ["--more"],
    }  # fmt: skip
    generation = {"generation": {"new_tokens": 8, "prompt_tokens": [1, 2, 3]}}
    run = MeasuredRun(planned=planned, extra={"settings": generation})
    document = read_one(tmp_path / "run", run)
    assert document.variant == (
        "CPUs 1,2; runner mine; launcher nice -n 5; extra_arguments --more; 3 + 8 tokens"
    )


def test_an_experiment_that_was_not_planned_has_what_its_times_say(tmp_path: Path) -> None:
    folder = write_measured(tmp_path / "run", MeasuredRun())
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["experiments"]["more"] = metrics["experiments"]["off"] | {"threads": None, "sme": None}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    off, more = read_run_directory(folder)
    assert (off.experiment, more.experiment, more.threads) == ("off", "more", None)
