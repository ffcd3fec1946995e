"""N2, I5: operators are told from several launches, through the commands; one disturbance moves nothing."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etprof.base.atomic import write_bytes
from etprof.base.files import hash_file
from etprof.etdump.reader import load_etdump
from etprof.export.request import ExportRequest
from etprof.targets.runner import find_host_runner
from tests.manifests import edit_manifest
from tests.world.etdumps import write_executions
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import RunSpec

if TYPE_CHECKING:
    from etprof.etdump.reader import ETDump
    from etprof.run.runner_result import RunnerResult
    from etprof.targets.request import RunnerRequest
    from tests.integration.conftest import Exports

STRETCH_US = 16_000
USUAL = RunSpec().operators
LONG = {mode: tuple(replace(each, us=100 * each.us) for each in ops) for mode, ops in USUAL.items()}
"""So long that whole microseconds say nothing."""


class Recorder(SimTarget):
    """Its operator launches differ by `spread`; one execution of one of them may be stretched."""

    spread = 0.0
    stretched: int | None = None
    """Which of the operator launches."""
    latency_factor = 1.0

    def run(self, request: RunnerRequest) -> RunnerResult:
        result = super().run(request)
        if request.etdump is not None:
            before = sum(each.etdump is not None for each in self.requests[:-1])
            is_stretched = before == self.stretched
            write_bytes(request.etdump, self.record(request, before, is_stretched=is_stretched))
        return result

    def record(self, request: RunnerRequest, launch: int, *, is_stretched: bool) -> bytes:
        chooser = random.Random(launch)  # noqa: S311 - noise, no secret
        usual = self.spec.operators[self.spec.in_force(request.sme)]
        ops = [replace(op, us=round(op.us * chooser.gauss(1, self.spread))) for op in usual]
        slow = [replace(ops[0], us=ops[0].us + STRETCH_US), *ops[1:]] if is_stretched else ops
        steady = [ops] * ((request.iterations or 1) - 1)
        return write_executions(
            [(b"First", ops), *((b"Execute", each) for each in [*steady, slow])]
        )

    def _latencies(self, mode: str, number: int, iterations: int) -> list[int]:
        found = super()._latencies(mode, number, iterations)
        return [round(self.latency_factor * each) for each in found]


def measured(folder: Path, target: Recorder, **measurement: object) -> dict[str, Any]:
    folder.mkdir()
    (folder / "m.pte").write_bytes(b"program")
    document = {
        "model": "m.pte",
        "output_root": "run",
        "experiments": [{"name": mode, "sme": mode} for mode in ("off", "sme2")],
        "measurement": {"blocks": 6, "kernels": False, **measurement},
    }
    (folder / "c.json").write_text(json.dumps(document))
    with simulated_host(lambda **_: target):
        done = etprof(folder, "run", "c.json", "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def recorder(**changes: object) -> Recorder:
    target = Recorder(RunSpec(operators=LONG) if "spread" in changes else RunSpec())
    for name, value in changes.items():
        setattr(target, name, value)
    return target


def test_operators_have_intervals_between_launches_and_verdicts(tmp_path: Path) -> None:
    """N2: "interval over calls" took the calls of one process as independent."""
    report = measured(tmp_path / "a", recorder(spread=0.01))
    for experiment in report["experiments"].values():
        rows = experiment["operators"]
        assert all(row["mean_ns_low"] < row["mean_ns"] < row["mean_ns_high"] for row in rows)
        shares = [row["share"] for row in (*rows, *experiment["overheads"])]
        assert sum(shares) == pytest.approx(1, abs=1e-12)
        assert experiment["executions"] == 102
    (comparison,) = report["comparisons"]
    changes = {row["candidate_label"]: row for row in comparison["operators"]}
    product, copy = (
        next(row for label, row in changes.items() if label.startswith(start))
        for start in ("Convolution", "Transpose")
    )
    assert product["verdict"] == "faster"
    assert product["speed_up_low"] < product["speed_up"] < product["speed_up_high"]
    assert product["speed_up"] == product["baseline_ns"] / product["candidate_ns"]
    assert copy["verdict"] in {"inconclusive", "no difference"}
    assert copy["adjusted_p"] > 0.05
    for table in ("classes", "categories"):
        records = comparison[table]
        records = records.values() if isinstance(records, dict) else records
        assert any(record["verdict"] == "faster" for record in records)


def test_one_launch_has_no_interval_and_says_so(tmp_path: Path) -> None:
    report = measured(tmp_path / "a", recorder(), operator_launches=1)
    for experiment in report["experiments"].values():
        assert {row["mean_ns_low"] for row in experiment["operators"]} == {None}
    assert {row["verdict"] for row in report["comparisons"][0]["operators"]} == {None}
    assert sum("recorded in one launch" in note for note in report["notes"]) == 2


def test_one_stretched_execution_moves_nothing(tmp_path: Path) -> None:
    """I5: 16 ms in one of 100 executions were 91.9 % of an inference of 47 µs."""
    quiet = measured(tmp_path / "a", recorder())
    disturbed = measured(tmp_path / "b", recorder(stretched=3))
    for name, experiment in quiet["experiments"].items():
        rows = zip(
            experiment["operators"], disturbed["experiments"][name]["operators"], strict=True
        )
        assert all(abs(one["share"] - other["share"]) < 0.01 for one, other in rows)
    left_out = [each["left_out"] for each in disturbed["experiments"].values()]
    assert sorted(each["disturbed"] for each in left_out) == [0, 1]
    assert any("1 of 102 executions (operator launch 2)" in each for each in disturbed["notes"])
    assert findings(quiet) == findings(disturbed) != []


def stretched(data: bytes, dump: ETDump) -> bytes:
    """The same recording, had its first product of a usual execution taken 16 ms more."""
    profile = dump.profile
    of = {name: index for index, name in enumerate(dump.names)}
    blocks = np.flatnonzero(dump.blocks.name_id == of["Execute"])
    whole = np.isin(profile.block_index, blocks) & (profile.name_id == of["Method::execute"])
    lengths = (profile.end_time - profile.start_time)[whole]
    usual = profile.block_index[whole][np.argsort(lengths)[lengths.size // 2]]
    labels = [dump.names[index] if index >= 0 else "" for index in profile.delegate_debug_id_str_id]
    is_product = np.array(["Convolution" in label for label in labels])
    row = int(np.flatnonzero(is_product & (profile.block_index == usual))[0])
    # Scalars of 8 bytes are aligned; no other number in the file is a moment of its clock.
    words = np.frombuffer(data, "<u8").copy()
    is_stamp = np.isin(words, np.concatenate([profile.start_time, profile.end_time]))
    assert is_stamp.sum() == 2 * profile.start_time.size
    words[is_stamp & (words >= profile.end_time[row])] += 1000 * STRETCH_US
    return words.tobytes()


@pytest.mark.slow
def test_one_stretched_execution_of_a_real_recording_moves_nothing(
    exports: Exports, tmp_path: Path
) -> None:
    """I5: recorded on this host by a runner without a clock beside it; one execution of 100."""
    runner = shutil.copy2(find_host_runner(), tmp_path / "runner")
    model = exports.get(ExportRequest("toy_cnn", "fp32")).pte
    document = {
        "model": str(model),
        "output_root": "quiet",
        "experiments": [{"name": "alone", "runner_path": str(runner), "threads": 1}],
        "measurement": {"blocks": 6, "min_seconds": 0.02, "kernels": False},
    }
    (tmp_path / "c.json").write_text(json.dumps(document))
    done = etprof(tmp_path, "run", "c.json")
    assert done.exit_code == 0, done.stderr
    assert not [*tmp_path.glob("quiet/*/*_clock.json")]
    shutil.copytree(tmp_path / "quiet", tmp_path / "disturbed")
    (changed,) = tmp_path.glob("disturbed/*/*_o02.etdump")
    write_bytes(changed, stretched(changed.read_bytes(), load_etdump(changed)))
    place = str(changed.relative_to(tmp_path / "disturbed"))
    edit_manifest(
        tmp_path / "disturbed",
        lambda document: document["files"][place].update(sha256=hash_file(changed)),
    )
    reports = []
    for name in ("quiet", "disturbed"):
        done = etprof(tmp_path, "analyze", tmp_path / name, "--json")
        assert done.exit_code == 0, done.stderr
        reports.append(json.loads(done.stdout))
    (quiet,), (disturbed,) = (report["experiments"].values() for report in reports)
    # What else disturbed this host while it was recorded is left out too.
    assert quiet["executions"] + quiet["left_out"]["disturbed"] == 102
    assert disturbed["left_out"]["disturbed"] == quiet["left_out"]["disturbed"] + 1
    tables = [[*each["operators"], *each["overheads"]] for each in (quiet, disturbed)]
    assert max(abs(a["share"] - b["share"]) for a, b in zip(*tables, strict=True)) < 0.01
    assert findings(reports[0]) == findings(reports[1]) != []


def findings(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (each["experiment"], found["rule"])
        for each in report["findings"]
        for found in each["findings"]
    ]


@pytest.mark.parametrize(("factor", "agrees"), [(1.2, True), (0.5, False), (1.5, False)])
def test_a_split_that_does_not_agree_is_told(tmp_path: Path, factor: float, agrees: bool) -> None:
    """N2: headline, split, tracer cost and findings disagreed on one page without a remark."""
    report = measured(tmp_path / "a", recorder(latency_factor=factor))
    (comparison,) = report["comparisons"]
    assert (comparison["waterfall"] is not None) is agrees
    assert (comparison["amdahl"] is not None) is agrees
    times = [found["time_ns"] for each in report["findings"] for found in each["findings"]]
    assert any(times) is agrees
    run, said = tmp_path / "a" / "run", "does not agree with the timed latency"
    printed = etprof(tmp_path, "analyze", run, "--full").stdout
    pages = [printed, *((run / name).read_text() for name in ("report.md", "report.html"))]
    assert [said in " ".join(page.split()) for page in pages] == [not agrees] * 3


def test_recording_a_small_model_is_no_disagreement(tmp_path: Path) -> None:
    """N2: events, marks and cold caches take 8 µs of toy_cnn's 32, whichever run it is."""
    execute_us, operators = SimTarget().spec.execute_ns("off") / 1000, len(USUAL["off"])
    for extra_us, agrees in ((0.7 * operators, True), (2 * operators, False)):
        factor = execute_us / (1.25 * execute_us + extra_us)
        report = measured(tmp_path / str(agrees), recorder(latency_factor=factor))
        said = [
            note
            for note in report["notes"]
            if note.startswith("off: the per-operator breakdown does not")
        ]
        assert (not said) is agrees, (factor, said)
