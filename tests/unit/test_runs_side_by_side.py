"""Several runs in one report are one comparison: figures, which no other beats, a picture."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import etprof as etprof_api
from etprof.analysis.assessment import assess_runs
from etprof.api import COLUMNS
from etprof.base.errors import UsageError
from etprof.run.load import Run as LoadedRun
from etprof.tables.alternatives import RUNS, side_by_side
from etprof.views.formats.html import render_html
from etprof.views.markdown import render_markdown
from tests.known_runs import on_off_run, write_run
from tests.world.host import etprof

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.analysis.assessment import Assessment

ATTACK = "<script>alert(1)</script>"


def write(
    folder: Path,
    precision: str,
    factor: float,
    size_bytes: int,
    snr_db: float | None = None,
    *,
    answer: str = "passed",
    **changes: Any,  # noqa: ANN401 - fields of a described run
) -> Path:
    """A run whose latencies are those of `on_off_run` times a factor, with its export's verdict."""
    run = on_off_run()
    experiments = [
        replace(each, latency_us=[factor * value for value in each.latency_us or ()])
        for each in run.experiments
    ]
    written = write_run(
        folder, replace(run, experiments=experiments, precision=precision, **changes)
    )
    path = written / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["model"] |= {"size_bytes": size_bytes, "sha256": f"{size_bytes:064}"}
    path.write_text(json.dumps(manifest))
    if snr_db is not None:
        verdict = {"question": "precision", "answer": answer, "snr_db": snr_db, "output": 0}
        export = {
            "schema_version": 1, "model": "known", "backend": "xnnpack", "precision": precision,
            "methods": {"forward": {"check": {"verdicts": [verdict]}}},
        }  # fmt: skip
        (written / "export.json").write_text(json.dumps(export))
    return written


def like(folder: Path, factor: float) -> Path:
    """The same run, only slower."""
    return write(folder.with_name("slow"), "fp16", factor, 2_000_000, 55)


def assess(folders: Sequence[Path]) -> tuple[Assessment, ...]:
    return assess_runs([LoadedRun.load(each) for each in folders])


def rows(folders: Sequence[Path]) -> list[dict[str, Any]]:
    found = side_by_side(assess(folders))
    assert found is not None
    return found.runs.records()


@pytest.fixture
def four(tmp_path: Path) -> list[Path]:
    return [
        write(tmp_path / "a", "fp32", 2, 4_000_000, 110),
        write(tmp_path / "b", "fp16", 1, 2_000_000, 55),
        write(tmp_path / "c", "int8", 0.7, 1_000_000, 31),
        write(tmp_path / "d", "8da4w", 1.5, 1_500_000, 25),
    ]


def test_what_no_other_run_beats(four: list[Path]) -> None:
    found = rows(four)
    assert [row["run"] for row in found] == [
        "known fp32",
        "known fp16",
        "known int8",
        "known 8da4w",
    ]
    assert [row["snr_db"] for row in found] == [110, 55, 31, 25]
    # THEN the last is slower, larger and less accurate than int8, and being slower alone is enough
    assert [row["is_unbeaten"] for row in rows([four[1], like(four[1], 1.3)])] == [True, False]
    assert [row["is_unbeaten"] for row in found] == [True, True, True, False]
    assert found[1]["speed_up"] == pytest.approx(2, rel=0.02)
    assert found[0]["speed_up"] is None


def test_a_difference_within_the_intervals_beats_nobody(tmp_path: Path) -> None:
    folders = [write(tmp_path / "a", "fp16", 1, 1000), write(tmp_path / "b", "fp16", 1.001, 1000)]
    assert [row["is_unbeaten"] for row in rows(folders)] == [True, True]
    # THEN the folders tell the runs apart, as nothing else does
    assert [row["run"] for row in rows(folders)] == ["known a", "known b"]


def test_wrong_outputs_are_never_unbeaten(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / "a", "fp16", 1, 1000, 55),
        write(tmp_path / "b", "int8", 0.1, 10, 3, answer="failed"),
    ]
    found = rows(folders)
    assert [row["is_unbeaten"] for row in found] == [True, False]
    assert [row["own_result"] for row in found][1] == "wrong outputs"
    assert found[1]["verdict"] is None


def test_runs_of_other_machines_do_not_beat_each_other(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / name, "fp16", factor, 1000, platform=name)
        for name, factor in (("android", 1), ("mac", 3))
    ]
    assert [row["is_unbeaten"] for row in rows(folders)] == [True, True]


def test_untimed_runs_give_no_time(tmp_path: Path) -> None:
    emulated: dict[str, Any] = {"platform": "emulator", "meaningful": False}
    folders = [
        write(tmp_path / "a", "fp16", 1, 2000, 55, **emulated),
        write(tmp_path / "b", "int8", 0.5, 1000, 31, **emulated),
    ]
    assessments = assess(folders)
    found = side_by_side(assessments)
    assert found is not None
    timed = {column.name for table in found.tables for column in table.columns if column.is_timed}
    assert timed >= {"latency_ns", "speed_up", "verdict", "mean_ns"}
    for table in (*found.tables, *(table for each in found.sections for table in each.tables)):
        for record in table.records():
            assert {record.get(name) for name in timed} == {None}
    overview = render_markdown(assessments).split("\n---\n")[0]
    assert not re.search(r"\d (ns|µs|ms|s)\b", overview)
    # THEN a run that was timed does not lend its time to one that was not
    mixed = rows([*folders, write(tmp_path / "c", "fp16", 1, 3000, 55)])
    assert [row["latency_ns"] is None for row in mixed] == [True, True, False]
    assert [row["is_unbeaten"] for row in mixed] == [True, True, True]


def test_the_page_is_one_comparison_and_names_are_data(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / "a", "fp16", 1, 2000, 55),
        write(tmp_path / "b", "int8", 2, 1000, 31),
    ]
    path = folders[1] / "manifest.json"
    path.write_text(path.read_text().replace('"int8"', json.dumps(ATTACK)))
    page = render_html(assess(folders))
    assert page.index('id="overview"') < page.index('id="all-front"') < page.index('id="r0"')
    assert '<ul class="dots">' in page
    assert page.count('href="#r1"') == 2  # the table and the picture
    assert ATTACK not in page
    assert "Where each run&#39;s time goes" in page
    assert "The same by module" not in page  # nobody knows a module of these programs


def test_the_api_has_the_same_table(four: list[Path]) -> None:
    frame = etprof_api.side_by_side(four[0], *map(etprof_api.load_run, four[1:]))
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == COLUMNS["runs"]
    assert frame["is_unbeaten"].tolist() == [row["is_unbeaten"] for row in rows(four)]
    with pytest.raises(UsageError, match="two runs"):
        etprof_api.side_by_side(four[0])


def test_one_run_is_no_comparison(four: list[Path]) -> None:
    assert side_by_side(assess(four[:1])) is None
    assert side_by_side(()) is None
    assert 'id="overview"' not in render_html(assess(four[:1]))


def test_the_command_says_it_too(four: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = etprof(
        tmp_path, "report", *map(str, four), "--out", str(out), "--format", "csv,json", "--json"
    )
    together = json.loads(done.stdout)["runs"]
    assert together == json.loads((out / "runs.json").read_text())
    assert [row["is_unbeaten"] for row in together["runs"]] == [True, True, True, False]
    assert (out / "runs.csv").read_text().splitlines()[0].split(",") == RUNS.names
    assert {row["run"] for row in together["run_categories"]} == {
        r["run"] for r in together["runs"]
    }
    told = etprof(tmp_path, "report", *map(str, four), "--out", str(out)).stdout
    assert "known fp32, known fp16 and known int8 are unbeaten" in " ".join(told.split())
