"""Operators against made-up peaks: which bound, how far, and what is told of one above its roof."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from etprof.analysis.generation import summarise_generation, trace_step
from etprof.analysis.roofline import Roofs
from etprof.analysis.split.operators import OperatorTimes
from etprof.backends.registry import BY_NAME
from etprof.base.errors import InputFileError, UsageError
from etprof.cli import run_command_line
from etprof.run.delegation import MethodReport
from etprof.run.directory import GenerationMetrics
from etprof.run.load import Run
from etprof.run.peaks import Peak, Peaks
from etprof.tables.operators import INTENSITY
from etprof.targets.peaks import device_of, keep_peaks, with_peaks
from etprof.views.charts import roofline_of
from tests.known_runs import on_off_run, write_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.tables.table import Value


def product(precision: str, high: float, **more: object) -> Peak:
    return made(program=f"p_{precision}", precision=precision, high=high, **more)


def stream(moved_bytes: int, high: float, **more: object) -> Peak:
    least = {"least_ns": moved_bytes / high}
    return made(program=f"s_{moved_bytes}", moved_bytes=moved_bytes, high=high, **least, **more)


def made(**facts: object) -> Peak:
    usual = {"sme": "off", "threads": 1, "launches": 6, "low": 1.0, "least_ns": 500.0}
    return Peak.model_validate(usual | facts)


PEAKS = (
    product("fp32", 100.0),
    product("fp32", 90.0),
    product("int8", 400.0),
    stream(2**13, 20.0),
    stream(2**17, 50.0),
    stream(2**26, 10.0),
)


def peaks(device: str = "here", found: Sequence[Peak] = PEAKS) -> Peaks:
    return Peaks(device=device, measured_at="2026-11-23T00:00:00+00:00", peaks=tuple(found))


def roofs() -> Roofs:
    found = Roofs.of(peaks(), "off", 1)
    assert found is not None
    return found


def took(median_ns: float) -> OperatorTimes:
    return OperatorTimes(
        total_ns=median_ns, launches_ns=(median_ns,), mean_ns=median_ns, share=0.5,
        median_ns=median_ns, minimum_ns=median_ns, maximum_ns=median_ns, standard_deviation_ns=0.0,
    )  # fmt: skip


def test_much_work_on_few_bytes_is_bound_by_the_peak_of_its_type() -> None:
    placed = roofs().place(took(40_000), 0, 10**6, 1000, "fp32")
    assert placed.bound == "compute"
    assert placed.compute_ns == pytest.approx(2 * 10**6 / 100)  # a MAC is two operations
    assert placed.distance == pytest.approx(2.0)
    assert placed.of_roof == pytest.approx(0.5)
    assert not placed.is_above


def test_integers_have_a_roof_of_their_own() -> None:
    assert roofs().place(took(40_000), 0, 10**6, 1000, "int8").distance == pytest.approx(8.0)


def test_a_type_that_is_not_known_has_the_highest_roof() -> None:
    """Nothing is said to be above a roof that may not be its own."""
    assert roofs().compute(None).high == 400.0
    assert roofs().compute("fp16").high == 400.0


def test_many_bytes_are_bound_by_streams_of_their_size() -> None:
    placed = roofs().place(took(16_000_000), 0, 10**6, 2**26, "fp32")
    assert placed.bound == "memory"
    assert placed.distance == pytest.approx(16_000_000 / (2**26 / 10.0))


@pytest.mark.parametrize(
    ("moved_bytes", "rate"), [(100, 50.0), (2**13, 50.0), (2**20, 50.0), (2**27, 10.0)]
)
def test_a_bandwidth_never_rises_with_size(moved_bytes: int, rate: float) -> None:
    assert roofs().bandwidth(moved_bytes).high == rate


def test_what_is_smaller_than_any_operator_is_bound_by_overhead() -> None:
    placed = roofs().place(took(820), 0, 100, 100, "fp32")
    assert placed.bound == "overhead"
    assert placed.distance == pytest.approx(820 / (2**13 / 20.0))


@pytest.mark.parametrize(
    ("median_ns", "step_ns", "is_above"),
    [(19_500, 0, False), (19_000, 0, True), (19_000, 1000, False)],
)
def test_above_the_roof_by_more_than_noise_is_told(
    median_ns: float, step_ns: float, *, is_above: bool
) -> None:
    """The roof is at 20 000 ns; 3 % are noise, and a clock's step is not known time."""
    assert roofs().place(took(median_ns), step_ns, 10**6, 100, "fp32").is_above == is_above


@pytest.mark.parametrize(("sme", "threads"), [("sme2", 1), ("off", 2), (None, 1), ("off", None)])
def test_peaks_of_another_mode_or_other_threads_are_none(
    sme: str | None, threads: int | None
) -> None:
    assert Roofs.of(peaks(), sme, threads) is None
    assert Roofs.of(None, "off", 1) is None


def test_products_without_streams_are_no_roofs() -> None:
    assert Roofs.of(peaks(found=PEAKS[:2]), "off", 1) is None


@pytest.mark.parametrize(
    ("types", "precision"),
    [(("F32",), "fp32"), (("PF16",), "fp16"), (("QD8", "F32", "QC4W"), "int8"),
     (("PQS8",), "int8"), (("X32",), None), ((), None)],
)  # fmt: skip
def test_a_type_says_which_peak(types: tuple[str, ...], precision: str | None) -> None:
    assert BY_NAME["xnnpack"].computes_in(types) == precision
    assert BY_NAME["portable"].computes_in(types) is None


def test_peaks_are_kept_by_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "cache"))
    run = Run.load(write_run(tmp_path / "run", on_off_run()))
    assert run.manifest is not None
    assert with_peaks(run).peaks is None
    keep_peaks(peaks("another device"))
    assert with_peaks(run).peaks is None
    place = keep_peaks(peaks(device_of(run.manifest)))
    assert with_peaks(run).peaks == peaks(device_of(run.manifest))
    place.write_text("{}")
    with pytest.raises(InputFileError, match="calibrate --peaks"):
        with_peaks(run)


def test_the_chart_has_the_roofs_of_what_it_shows() -> None:
    row: dict[str, Value] = {
        "number": 1, "label": "a", "category": "GEMM", "class": "dense", "macs_per_byte": 10.0,
        "gflops": 50.0, "compute_peak": 100.0, "bandwidth_peak": 10.0, "of_roof": 0.5,
        "bound": "compute",
    }  # fmt: skip
    drawn = roofline_of(
        replace(INTENSITY, rows=(tuple(row.get(name) for name in INTENSITY.names),))
    )
    assert drawn is not None
    assert [text for _, text in drawn["rows"]] == ["10.0", "100", "1000"]
    large = dict(row, macs=2_000_000, gflops=None, compute_peak=None, bandwidth_peak=None)
    counted = roofline_of(
        replace(INTENSITY, rows=(tuple(large.get(name) for name in INTENSITY.names),))
    )
    assert counted is not None
    # Seven digits did not fit beside the axis.
    assert [text for _, text in counted["rows"]] == ["10⁶", "10⁷"]
    (roof,) = drawn["roofs"]
    assert roof["title"] == "100 GFLOP/s, 10.0 GB/s"
    # Decades 1 to 2 across and 1 to 3 upwards: the corner at 5 MACs a byte is left of the chart.
    assert roof["path"] == "M60.0 155.0L980.0 155.0"
    assert "50.0 % of its roof (compute)" in drawn["dots"][0]["title"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a program"),
        (["a.pte", "--peaks"], "leave out a.pte"),
        (["a.pte", "--launches", "3"], "--launches is for --peaks"),
        (["--peaks", "--store", "h.sqlite"], "--store is for"),
    ],
)
def test_flags_of_peaks_that_make_no_sense_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run_command_line(["calibrate", *words])


@pytest.mark.parametrize(("flag", "word"), [("--precisions", "fp64"), ("--target", "emulator")])
def test_what_has_no_peak_is_refused(flag: str, word: str) -> None:
    with pytest.raises(UsageError, match=flag):
        run_command_line(["calibrate", "--peaks", flag, word])


def test_a_token_reads_what_its_method_holds_and_is_held_against_streams_of_that_size(
    tmp_path: Path,
) -> None:
    operators = [
        {"name": "e", "operator": "embedding.default", "held_bytes": 1024},
        {"name": "q", "operator": "dequantize.default", "held_bytes": 999, "is_quantization": True},
        {"name": "l", "operator": "linear.default", "held_bytes": 2**17},
        {"name": "k", "operator": "index_put.default", "held_bytes": 4096},
        {"name": "s", "operator": "sdpa_with_kv_cache.default", "held_bytes": 4096},
    ]
    step = MethodReport.model_validate({"operators": operators}).step_bytes
    assert step == (2**17 + 1024, 8192)
    assert step is not None
    generated = GenerationMetrics(
        prefill_tokens_per_second=[2000.0],
        decode_tokens_per_second=[1e5],
        time_to_first_token_ns=[5000],
        token_latency_ns=[10_000] * 4,
    )
    with pytest.raises(ValidationError, match="no token took any time"):
        GenerationMetrics.model_validate({**generated.model_dump(), "token_latency_ns": [0, 0]})
    metrics = Run.load(write_run(tmp_path / "r", on_off_run())).experiments[0].metrics
    assert metrics is not None
    blocks = [each.model_copy(update={"generation": generated}) for each in metrics.blocks]
    speed = summarise_generation(metrics.model_copy(update={"blocks": blocks}))
    assert speed is not None
    found = trace_step(
        step, speed, Roofs.of(Peaks(device="d", measured_at="t", peaks=PEAKS), "off", 1)
    )
    assert found is not None
    # Of streams, those of 2^17 bytes and more: a smaller one is no measure of what is larger.
    assert found.gigabytes_per_s == pytest.approx(step.total / 10_000)
    assert found.of_stream == pytest.approx(step.total / 10_000 / 50)
    assert trace_step(step, speed, None) == replace(found, of_stream=None)
    assert trace_step(None, speed, None) is None
    # A report of an earlier version does not say it of every operator.
    del operators[2]["held_bytes"]
    assert MethodReport.model_validate({"operators": operators}).step_bytes is None
