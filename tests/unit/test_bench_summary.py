"""The summary says what was measured, what failed, and nothing about emulated times."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from etprof.bench.combinations import SkippedCombination, expand
from etprof.bench.execution import UnitOutcome
from etprof.bench.matrix import parse_matrix
from etprof.bench.prompt_lengths import (
    conclude,
    pair_lengths,
    prompt_length_table,
)
from etprof.bench.prompt_work import PromptWork
from etprof.bench.rows import BenchRow, make_rows
from etprof.bench.session import StoredUnit
from etprof.bench.summary import (
    render_markdown,
    speed_table,
    summary_document,
    summary_table,
)
from etprof.history.ingest import read_run_directory
from etprof.run.accuracy import TextQuality, Verdict
from etprof.views.cells import shown_columns
from etprof.views.terminal import terminal_table
from tests.json_numbers import undeclared
from tests.known_runs import Experiment, Run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.bench.combinations import Unit
    from etprof.history.schema import Run as StoredRun

OFF_US = [900.0 + i % 3 for i in range(10)]
ON_US = [300.0 + i % 4 for i in range(10)]


def units(**changes: object) -> list[Unit]:
    found, _ = expand(parse_matrix(json.dumps({"models": ["toy_cnn"], **changes}), "m"))
    return found


def on_and_off(folder: Path, **changes: Any) -> tuple[StoredRun, ...]:  # noqa: ANN401
    experiments = (
        Experiment("off", (), latency_us=OFF_US),
        Experiment("on", (), sme="sme2", latency_us=ON_US),
    )
    run = write_run(folder / "run", Run(experiments, **changes))
    return tuple(read_run_directory(run, device="phone"))


@pytest.fixture
def kept(tmp_path: Path) -> list[StoredUnit]:
    """A run with SME2 on and off, and one that was never exported."""
    works, broken = units(precisions=["fp32", "int8"])
    return [
        StoredUnit(UnitOutcome(works, duration_s=1.5, worker="host:1"), on_and_off(tmp_path)),
        StoredUnit(UnitOutcome(broken, ("not exported: no <b>weights</b> | today",)), ()),
    ]


def shown(kept: list[StoredUnit]) -> str:
    stream = io.StringIO()
    Console(file=stream, width=160).print(terminal_table(summary_table("m", make_rows(kept))))
    return stream.getvalue()


def test_the_table_has_a_row_per_experiment_and_the_speed_up(kept: list[StoredUnit]) -> None:
    table = summary_table("m", make_rows(kept))
    assert table.title == "m: 3 experiments, 1 failed; host, toy_cnn, xnnpack"
    headings = [each.heading for each in shown_columns(table, "everywhere")]
    columns = "precision SME threads latency 95 % interval load first peak SME2 speedup"
    assert " ".join(headings).strip() == columns
    off, on, failed = table.records()
    assert (off["precision"], off["SME"], off["threads"]) == ("fp32", "off", "1")
    assert off["latency"] == pytest.approx(901_000)
    assert on["SME2 speedup"] == "2.99× (faster)"
    assert failed["remark"] == "failed: not exported: no <b>weights</b> | today"
    text = shown(kept)
    assert "901 µs" in text
    assert "no <b>weights</b>" in text


def test_markdown_takes_names_as_text(kept: list[StoredUnit]) -> None:
    text = render_markdown("a*b", make_rows(kept), kept, [SkippedCombination("x|y", "excluded")])
    assert "# a\\*b: 3 experiments, 1 failed; host, toy\\_cnn, xnnpack" in text
    assert "no &lt;b&gt;weights&lt;/b&gt; \\| today" in text
    assert "- x\\|y: excluded" in text
    assert "<b>" not in text


def test_json_has_every_metric_and_failure(kept: list[StoredUnit]) -> None:
    document = summary_document("m", make_rows(kept), kept, [])
    off, on, failed = document["rows"]
    assert on["metrics"]["latency_ns"]["value"] == pytest.approx(301_000)
    assert (on["sme2_speed_up"], off["sme2_speed_up"]) == (pytest.approx(2.99, abs=0.01), None)
    assert (failed["status"], failed["metrics"]) == ("failed", {})
    assert document["problems"] == [
        "toy_cnn xnnpack int8 on host: not exported: no <b>weights</b> | today"
    ]
    assert undeclared("bench", json.loads(json.dumps(document, allow_nan=False))) == []


def generated(folder: Path, *, meaningful: bool = True) -> list[StoredUnit]:
    """A run with SME2 on and off, whose launches read a prompt and added tokens."""
    generation = {"new_tokens": 128, "prompt_length": 512}
    (unit,) = units(models=[{"model": "decoder", "generation": generation}])
    platform = "linux" if meaningful else "emulator"
    on_and_off(folder, platform=platform, meaningful=meaningful)
    path = folder / "run" / "metrics.json"
    metrics = json.loads(path.read_text())
    for side, experiment in enumerate(metrics["experiments"].values()):
        for number, block in enumerate(experiment["blocks"]):
            token_ns = (10_000_000 + 1000 * number) // (1 + side)
            block["generation"] = {
                "time_to_first_token_ns": [5000],
                "prefill_tokens_per_second": [2000.0 + number],
                "decode_tokens_per_second": [1e9 / token_ns],
                "token_latency_ns": [token_ns],
            }
    path.write_text(json.dumps(metrics))
    runs = tuple(read_run_directory(folder / "run", device="phone"))
    return [StoredUnit(UnitOutcome(unit), runs)]


def test_language_models_have_rows_as_llama_bench_names_them(tmp_path: Path) -> None:
    kept = generated(tmp_path)
    rows = make_rows(kept)
    found = summary_document("m", rows, kept, [])["language_models"]
    assert [(each["test"], each["SME"], each["threads"]) for each in found] == [
        ("pp512", "off", "1"),
        ("tg128 @ d512", "off", "1"),
        ("pp512", "sme2", "1"),
        ("tg128 @ d512", "sme2", "1"),
    ]
    assert [each["tokens_per_second"] for each in found] == pytest.approx(
        [2004.5, 100, 2004.5, 200], rel=1e-3
    )
    assert all(each["low"] <= each["tokens_per_second"] <= each["high"] for each in found)
    json.dumps(found, allow_nan=False)
    page = render_markdown("m", rows, kept, [])
    assert "## Language models: tokens a second" in page
    assert page.count("| tg128 ") == 2
    assert {each["model"] for each in found} == {"decoder"}


def test_rows_of_a_language_model_have_its_quality_beside_them(tmp_path: Path) -> None:
    (kept,) = generated(tmp_path)
    unknown = summary_document("m", make_rows([kept]), [kept], [])["language_models"]
    assert {(each["perplexity"], each["quality"]) for each in unknown} == {(None, None)}
    quality = TextQuality(
        program="0" * 64,
        text="t",
        tokens=128,
        vocabulary=256,
        perplexity=9.0,
        eager_perplexity=8.0,
        new_tokens=32,
        same_tokens=8,
        verdict=Verdict(question="text", answer="passed"),
    )
    rows = make_rows([replace(kept, quality=quality)])
    document = summary_document("m", rows, [kept], [])
    assert undeclared("bench", document) == []
    found = document["language_models"]
    assert len(found) == 4
    for each in found:
        assert (each["perplexity"], each["perplexity_ratio"]) == (9, 1.125)
        assert (each["same_tokens"], each["quality"]) == (0.25, "passed")
    assert "| 9.00 | 1.12 | 25.0 % |" in render_markdown("m", rows, [kept], [])


def test_no_row_of_a_language_model_is_made_of_emulated_times(
    tmp_path: Path, kept: list[StoredUnit]
) -> None:
    assert speed_table(make_rows(generated(tmp_path / "e", meaningful=False))).rows == ()
    assert speed_table(make_rows(kept)).rows == ()
    assert "Language models" not in render_markdown("m", make_rows(kept), kept, [])


def test_emulated_times_are_never_shown(tmp_path: Path) -> None:
    (unit,) = units()
    runs = on_and_off(tmp_path, platform="emulator", meaningful=False)
    kept = [StoredUnit(UnitOutcome(unit), runs)]
    text = shown(kept)
    assert "emulated: kernels, no times" in text
    assert "µs" not in text
    assert make_rows(kept)[1].effect is None


def of_lengths(folder: Path, *, meaningful: bool = True) -> list[BenchRow]:
    """Runs of 16, 64 and 512 tokens of prompt, of which SME2 is slower at the first."""
    found = []
    for length, gain in ((512, 3.0), (16, 0.5), (64, 1.5)):
        (kept,) = generated(folder / str(length), meaningful=meaningful)
        entry = kept.outcome.unit.model
        own = replace(
            kept.outcome.unit,
            model=entry.model_copy(
                update={"generation": entry.generation.model_copy(update={"prompt_length": length})}  # type: ignore[union-attr]
            ),
        )
        for run in kept.runs:
            for metric in run.metrics:
                if metric.name == "prefill_tokens_per_second" and run.sme_mode == "sme2":
                    metric.samples = tuple(gain * each for each in metric.samples)
        work = PromptWork(at_once=length, macs=1000 * length)
        found.append(StoredUnit(replace(kept.outcome, unit=own), kept.runs, None, work))
    return make_rows(found)


def test_it_is_said_from_which_length_of_a_prompt_sme2_pays(tmp_path: Path) -> None:
    rows = of_lengths(tmp_path)
    table = prompt_length_table(rows).records()
    assert [(each["prompt_tokens"], each["sme_macs"]) for each in table] == [
        (16, 16_000),
        (64, 64_000),
        (512, 512_000),
    ]
    assert [each["speed_up"] for each in table] == pytest.approx([0.5, 1.5, 3])
    for each in table:
        low, value, high = (float(str(each[f"speed_up{end}"])) for end in ("_low", "", "_high"))
        assert low <= value <= high
    assert [each["verdict"] for each in table] == ["slower", "faster", "faster"]
    (said,) = conclude(pair_lengths(rows))
    assert (said["from_length"], said["times_are_proven"]) == (64, True)
    assert said["says"] == (
        "host, decoder, xnnpack, fp32, 1 thread: SME2 pays from a prompt of 64 tokens on: the "
        "interval lies above 1 there and at every longer one that was measured"
    )
    # AND a longer one at which it does not leaves none
    longest = [row for row in rows if row.outcome.unit.model.prompt_length == 16]
    (said,) = conclude(pair_lengths(longest))
    assert said["from_length"] is None
    assert said["says"].endswith("no measured length from which on the interval lies above 1")


def test_emulated_lengths_have_counted_work_and_no_times(tmp_path: Path) -> None:
    rows = of_lengths(tmp_path, meaningful=False)
    table = prompt_length_table(rows).records()
    assert [each["sme_macs"] for each in table] == [16_000, 64_000, 512_000]
    timed = ("off_rate", "on_rate", "speed_up", "speed_up_low", "verdict")
    assert {each[name] for each in table for name in timed} == {None}
    (said,) = conclude(pair_lengths(rows))
    assert (said["from_length"], said["times_are_proven"]) == (None, False)
    assert said["says"].endswith(
        "times are unproven here, so nobody knows from which length SME2 pays; products ran on SME "
        "at 3 of 3 counted lengths"
    )


def test_runs_without_both_modes_have_no_lengths(kept: list[StoredUnit], tmp_path: Path) -> None:
    assert prompt_length_table(make_rows(kept)).rows == ()
    rows = [row for row in of_lengths(tmp_path) if row.run and row.run.sme_mode == "sme2"]
    assert (prompt_length_table(rows).rows, conclude(pair_lengths(rows))) == ((), [])
