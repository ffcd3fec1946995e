"""I4: any byte of any measured file counts, the manifest's own included."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import InputFileError
from etprof.measuring.plan import Experiment, Settings
from etprof.report_files import write_report_files
from etprof.run.delegation import find_method_report
from etprof.run.directory import find_measured_files
from etprof.run.load import Run
from etprof.run.manifest import MANIFEST, Manifest, MeasuredModel
from etprof.run.validation import validate_run, worst_level
from etprof.statistics.noise import LEAST_BLOCKS
from tests.first_edition import downgrade, host_run
from tests.known_runs import on_off_run, write_run
from tests.manifests import edit_manifest
from tests.unit.test_load import watched
from tests.unit.test_pipeline import run
from tests.world.sim_target import SimTarget
from tests.world.spec import Noise, RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etprof.run.runner_result import RunnerResult
    from etprof.targets.request import RunnerRequest

EXPERIMENTS: Final = [
    Experiment(name="linux_off", sme="off", iterations=3, warmup=1),
    Experiment(name="linux_sme2", sme="sme2", iterations=3, warmup=1),
    Experiment(name="counted", sme="sme2", mode="kernels", iterations=2, warmup=0),
    Experiment(name="computed", sme="sme2", mode="outputs", iterations=1, warmup=0),
]
SETTINGS: Final = Settings(operator_launches=1, blocks=2, operator_iterations=3, kernels=True)


@pytest.fixture(name="sound", scope="module")
def sound_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with files of every kind."""
    folder = tmp_path_factory.mktemp("integrity")
    for name in ("m.pte.json", "m.pte.delegation.json"):
        (folder / name).write_text(
            '{"model": "m", "backend": "xnnpack", "precision": "fp32"}'
            if name == "m.pte.json"
            else '{"schema_version": 1, "model": "m", "methods": {}}'
        )
    assert not run(folder, SimTarget(), EXPERIMENTS, SETTINGS).errors
    return folder / "run"


def damaged(run_directory: Path) -> list[str]:
    return [each.text for each in validate_run(run_directory) if each.level == "damaged"]


def changes(path: Path, other: Path) -> Iterator[str]:
    """Damages `path` in every way, one after the other, and says which file has to be named."""
    content, others = path.read_bytes(), other.read_bytes()
    middle = len(content) // 2
    if content:
        flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
        for changed in (flipped, content[:-1], content[:middle]):
            path.write_bytes(changed)
            yield path.name
    path.write_bytes(content + b"\n")
    yield path.name
    path.unlink()
    yield path.name
    path.write_bytes(others)
    other.write_bytes(content)
    if content != others:
        yield path.name
    path.write_bytes(content)
    other.write_bytes(others)


def test_a_finished_run_has_files_of_every_kind_and_is_sound(sound: Path) -> None:
    kinds = set(find_measured_files(sound).values())
    assert kinds == {
        "metrics", "delegation", "export", "etdump", "result", "kernels", "clock", "outputs", "log",
    }  # fmt: skip
    assert damaged(sound) == []
    assert worst_level(validate_run(sound)) in {"ok", "note"}


@pytest.mark.slow
def test_any_damage_of_any_file_is_named(sound: Path, tmp_path: Path) -> None:
    """T1, T17, I4: counts times 1000, garbage in their place or no file at all were "ok"."""
    folder = shutil.copytree(sound, tmp_path / "run")
    names = [*find_measured_files(folder), MANIFEST]
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        for expected in changes(folder / name, folder / other):
            told = damaged(folder)
            if name == MANIFEST and not (folder / name).exists():
                assert worst_level(validate_run(folder)) == "incomplete"
            else:
                assert any(expected in text for text in told), (name, told)
    assert damaged(folder) == []


@pytest.mark.parametrize("kind", ["etdump", "result", "kernels", "outputs", "log"])
def test_an_added_file_of_any_kind_is_named(sound: Path, tmp_path: Path, kind: str) -> None:
    """I4: evidence that was put there later was taken for the run's own."""
    folder = shutil.copytree(sound, tmp_path / "run")
    name = next(name for name, its in find_measured_files(folder).items() if its == kind)
    beside = folder / name
    added = beside.with_name(f"added_{beside.name}")
    shutil.copy(beside, added)
    assert any(added.name in text for text in damaged(folder))


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("etdump", "x.etdump"),
        ("etdump", "x.etdp"),
        ("etdump", "e/y.etdp"),
        ("etdump", "e/.y.etdump"),
        ("kernels", "zz_t1_kernels.json"),
        ("kernels", "e/zz_t1_kernels.json"),
        ("result", "x_result.json"),
        ("outputs", "x_outputs/output_0.bin"),
        ("delegation", "m.pte.delegation.json"),
    ],
)
def test_no_place_that_is_read_is_unguarded(
    sound: Path, tmp_path: Path, kind: str, place: str
) -> None:
    """D3: what was read and what was guarded were two lists."""
    folder = shutil.copytree(sound, tmp_path / "run")
    name = next(name for name, its in find_measured_files(folder).items() if its == kind)
    (folder / place).parent.mkdir(exist_ok=True)
    shutil.copy(folder / name, folder / place)
    assert [text.partition(" ")[0] for text in damaged(folder)] == [place]


def test_the_reader_opens_nothing_that_is_not_guarded(sound: Path, tmp_path: Path) -> None:
    """D3: evidence at the top, further folders, and a path out of the run in metrics.json."""
    folder = shutil.copytree(sound, tmp_path / "run")
    (tmp_path / "stranger_b00_result.json").write_text("{}")
    names = find_measured_files(folder)
    for name in names:
        for place in (
            name.rpartition("/")[2],
            f"further/{name.rpartition('/')[2]}",
            f"deep/{name}",
        ):
            (folder / place).parent.mkdir(exist_ok=True, parents=True)
            if not (folder / place).exists():
                shutil.copy(folder / name, folder / place)
    own = next(name for name, kind in names.items() if kind == "etdump")
    (folder / own).unlink()
    metrics = (folder / "metrics.json").read_text()
    assert own in metrics
    (folder / "metrics.json").write_text(metrics.replace(own, "../stranger.etdump"))
    with watched(tmp_path) as opened:
        Run.load(folder)
    read = {name.removeprefix("run/") for name in opened}
    assert read - find_measured_files(folder).keys() == {MANIFEST}


@pytest.mark.parametrize("kind", ["result", "etdump", "kernels", "outputs"])
def test_a_file_that_changed_after_its_launch_is_measured_again(kind: str, tmp_path: Path) -> None:
    """T1: what a launch left is hashed when it ends, so an edit before `--resume` is no result."""
    run(tmp_path, SimTarget(), EXPERIMENTS, SETTINGS)
    folder = tmp_path / "run"
    chosen = next(name for name, found in find_measured_files(folder).items() if found == kind)
    content = (folder / chosen).read_bytes()
    changed = content.replace(b"1", b"2", 1) if b"1" in content else content + b"\n"
    (folder / chosen).write_bytes(changed)
    target = SimTarget()
    run(tmp_path, target, EXPERIMENTS, SETTINGS, resume=True)
    assert len(target.requests) == 1
    assert not damaged(folder)


@pytest.mark.parametrize("first_edition", [False, True])
def test_a_truncated_file_that_nobody_hashed_is_named(
    sound: Path, tmp_path: Path, first_edition: bool
) -> None:
    """D15: validate parsed no kernel trace, result, delegation, export: "incomplete" or "ok"."""
    folder = tmp_path / "run"
    if first_edition:
        host_run(folder)
        document = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(document | {"files": {}}))
    else:
        shutil.copytree(sound, folder)
        edit_manifest(folder, lambda whole: whole.update(status="running", files={}))
    assert damaged(folder) == []
    for name, kind in find_measured_files(folder).items():
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
        told = damaged(folder)
        assert [kind == "log" or name in text for text in told] == [True] * (kind != "log"), name
        (folder / name).write_bytes(content)


@pytest.mark.slow
def test_noise_is_what_rule_f13_calls_noise(tmp_path: Path) -> None:
    """D15: validate had numbers and limits of its own."""
    blocks = Settings(operator_launches=1, blocks=8, operator_iterations=3, kernels=False)
    for index, spread in enumerate((0.0, 0.01, 0.045, 0.08, 0.3)):
        spec = RunSpec(noise=Noise(block=spread, call=0.001), seed=4)
        run(tmp_path / str(index), SimTarget(spec), EXPERIMENTS[:2], blocks)
        folder = tmp_path / str(index) / "run"
        told = {each.text.partition(" is noisy")[0] for each in validate_run(folder)}
        loaded = Run.load(folder)
        rules = assess_run(analyze_run(loaded)).findings
        fired = {e.experiment for e in rules if any(f.rule == "F13" for f in e.findings)}
        assert fired == told & set(loaded.timed)
        assert (spread < 0.02) <= (not fired)
        assert (spread > 0.2) <= (fired == set(loaded.timed))


@pytest.mark.parametrize(("slow_start", "is_told"), [(1.0, False), (1.5, True)])
def test_launches_that_start_slow_are_told(
    slow_start: float, is_told: bool, tmp_path: Path
) -> None:
    """Promise 24, mutant 47: more warm-up is needed, and nobody had seen the line."""
    spec = RunSpec(noise=Noise(slow_start=slow_start, call=0.001))
    experiments = [Experiment(name="linux_off", sme="off", iterations=40, warmup=0)]
    run(
        tmp_path,
        SimTarget(spec),
        experiments,
        Settings(operator_launches=1, blocks=2, kernels=False),
    )
    told = [each for each in validate_run(tmp_path / "run") if "start slow" in each.text]
    assert [each.level for each in told] == ["note"] * is_told


@pytest.mark.parametrize(("blocks", "is_told"), [(2, True), (LEAST_BLOCKS, False)])
def test_too_few_blocks_to_tell_noise_are_told(tmp_path: Path, blocks: int, is_told: bool) -> None:
    """Finding 14: two blocks that were 15 % apart were passed over in silence."""
    settings = Settings(blocks=blocks, operator_iterations=3, kernels=False)
    run(tmp_path, SimTarget(), EXPERIMENTS[:1], settings)
    told = [each.level for each in validate_run(tmp_path / "run") if "too few" in each.text]
    assert told == ["note"] * is_told


def test_the_summary_of_another_run_is_told(sound: Path, tmp_path: Path) -> None:
    """Open 6 of the first session: run_id was not in analysis_summary.json."""
    folder = shutil.copytree(sound, tmp_path / "run")

    def notes() -> list[str]:
        told = [each.text for each in validate_run(folder) if each.level == "note"]
        return [text for text in told if "analysis_summary.json" in text]

    assert notes()
    write_report_files(assess_run(analyze_run(Run.load(folder))), folder)
    summary = json.loads((folder / "analysis_summary.json").read_text())
    assert summary["run_id"] == json.loads((folder / MANIFEST).read_text())["run_id"]
    assert not notes()
    for content in (json.dumps(summary | {"run_id": "0" * 32}), "{"):
        (folder / "analysis_summary.json").write_text(content)
        assert notes()


def test_metrics_of_another_run_are_refused(sound: Path, tmp_path: Path) -> None:
    """D15: metrics.json had a run_id that nobody compared."""
    folder = shutil.copytree(sound, tmp_path / "run")
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(metrics | {"run_id": "0" * 32}))
    with pytest.raises(InputFileError, match="run_id"):
        Run.load(folder)


def later_files(folder: Path) -> list[Path]:
    """Files that tell that a manifest of schema 1 is not theirs."""
    return [
        path
        for path in folder.rglob("*.json")
        if path.name.endswith(("_kernels.json", "_result.json"))
    ]


def refusal(folder: Path) -> str:
    with pytest.raises(InputFileError) as refused:
        Run.load(folder)
    return str(refused.value)


@pytest.mark.parametrize(
    "left", ["run_id", "checksum", "kind", "runners", "resumptions", "asked", "runner_sha256", ""]
)
def test_who_takes_the_seal_off_is_told_by_what_is_left(
    sound: Path, tmp_path: Path, left: str
) -> None:
    """A-D2: schema 1 was taken at its word, whatever else the manifest said."""
    folder = shutil.copytree(sound, tmp_path / "run")
    (folder / "metrics.json").unlink()
    downgrade(folder, but={left})
    for path in later_files(folder) if left else ():
        path.unlink()
    assert f"{folder / MANIFEST} is damaged" in refusal(folder)
    assert refusal(folder) in damaged(folder)


@pytest.mark.parametrize("left", ["metrics.json", "*/*_result.json", "*/*_kernels.json"])
def test_who_takes_the_seal_off_is_told_by_any_other_file(
    sound: Path, tmp_path: Path, left: str
) -> None:
    """A-D2, A-D15: `validate` said "hashes of the manifest" where `analyze` refused the run."""
    folder = shutil.copytree(sound, tmp_path / "run")
    downgrade(folder)
    kept = set(folder.glob(left))
    for path in {*later_files(folder), folder / "metrics.json"} - kept:
        path.unlink()
    assert kept
    assert MANIFEST in refusal(folder)
    assert refusal(folder) in damaged(folder)


def test_what_reports_refuse_validate_names(sound: Path, tmp_path: Path) -> None:
    """A-D15: it read each file by itself; of a run cut off it named none."""
    folder = shutil.copytree(sound, tmp_path / "run")
    edit_manifest(folder, lambda whole: whole.update(status="running", files={}))
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(metrics | {"run_id": "0" * 32}))
    assert damaged(folder) == [refusal(folder)]


def test_an_edit_while_others_are_measured_is_told(tmp_path: Path) -> None:
    """T1: the manifest has the file as its launch left it, not as it was when the run ended."""
    edited: list[Path] = []

    class Edits(SimTarget):
        def run(self, request: RunnerRequest) -> RunnerResult:
            if len(self.requests) == 3:
                edited.append(self.requests[0].result)
                edited[0].write_bytes(edited[0].read_bytes() + b"\n")
            return super().run(request)

    run(tmp_path, Edits(), EXPERIMENTS, SETTINGS)
    assert [text.partition(" ")[0].rpartition("/")[2] for text in damaged(tmp_path / "run")] == [
        edited[0].name
    ]


def test_a_report_that_came_beside_the_program_later_is_not_the_runs(tmp_path: Path) -> None:
    """D3: the reader took it from places of which no manifest speaks."""
    run(tmp_path, SimTarget(), EXPERIMENTS[:1], SETTINGS)
    folder = tmp_path / "run"
    report = {"schema_version": 1, "model": "m", "methods": {"forward": {}}}
    (tmp_path / "m.pte.delegation.json").write_text(json.dumps(report))
    assert Run.load(folder).programs[0].report is None
    model = MeasuredModel(name="m", path=str(tmp_path / "m.pte"))
    first = Manifest(schema_version=1, platform="linux", model=model)
    assert find_method_report(folder, first) is not None


def test_a_folder_of_runs_names_the_runs(tmp_path: Path) -> None:
    """`validate out_net/runs` said that manifest, metrics and ETDump are lost."""
    for name in ("linux", "emulator"):
        write_run(tmp_path / "runs" / name, on_off_run())
    with pytest.raises(InputFileError) as caught:
        validate_run(tmp_path / "runs")
    folder = tmp_path / "runs"
    assert str(caught.value) == (
        f"{folder} is a folder of runs; give a run directory: {folder}/emulator, {folder}/linux"
    )
