"""What a device can do at most: how it is measured, and what becomes of the measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etprof.base.errors import TargetError
from etprof.config import TargetConfig
from etprof.measuring.peaks import peak_config, read_peaks
from tests.golden.runs import described
from tests.known_runs import OFF_OPS, ON_OPS, Experiment, Op, Run, on_off_run, write_run


def test_every_program_is_launched_in_every_mode_at_every_number_of_threads() -> None:
    programs = {"Product256": Path("a.pte"), "Stream8K": Path("b.pte")}
    config = peak_config(
        programs, TargetConfig(kind="linux"), modes=("off", "sme2"), threads=(1, 4), launches=3,
        folder=Path("out"),
    )  # fmt: skip
    assert (config.model, config.output_root) == (Path("a.pte"), Path("out"))
    assert {name: program.model for name, program in config.programs.items()} == {
        "Stream8K": Path("b.pte")
    }
    assert [(e.name, e.program, e.sme, e.threads) for e in config.experiments] == [
        ("Product256_off", "", "off", (1, 4)),
        ("Product256_sme2", "", "sme2", (1, 4)),
        ("Stream8K_off", "Stream8K", "off", (1, 4)),
        ("Stream8K_sme2", "Stream8K", "sme2", (1, 4)),
    ]
    assert {e.iterations for e in config.experiments} == {2}
    measurement = config.measurement
    # Forty inferences of each of the three launches.
    assert (measurement.operator_iterations, measurement.operator_launches) == (120, 3)
    assert (measurement.blocks, measurement.min_seconds, measurement.kernels) == (1, 0.01, False)


def test_a_products_rate_is_two_operations_for_each_multiply_accumulate(tmp_path: Path) -> None:
    """The stem has 800,000 of them, and took 400 µs without SME2 and 100 µs with it."""
    run = replace(on_off_run(), delegation=described())
    peaks = read_peaks(write_run(tmp_path / "run", run))
    assert (peaks.device, peaks.executorch_version) == ("Android device", "1.5.1")
    assert peaks.measured_at == "2026-11-21T05:00:00+00:00"
    off, sme2 = peaks.peaks
    assert (off.program, off.precision, off.moved_bytes) == ("known", "fp16", None)
    assert (off.sme, off.threads, off.launches) == ("off", 1, 1)
    assert (off.low, off.high, off.least_ns) == (4.0, 4.0, 400_000.0)
    assert (sme2.sme, sme2.low, sme2.least_ns) == ("sme2", 16.0, 100_000.0)


def test_a_streams_rate_is_bytes_and_has_the_range_of_its_launches(tmp_path: Path) -> None:
    """The depthwise convolution moves most, 24,000 bytes, in 50, 40 and 80 µs."""
    description = described()
    operators = description["methods"]["forward"]["operators"]
    for record in (*operators, *description["methods"]["forward"]["delegates"][0]["nodes"]):
        record["macs"] = 0
    further = [[replace(op, us=us) if "DWConv" in op.label else op for op in OFF_OPS]
               for us in (40, 80)]  # fmt: skip
    run = Run(
        [Experiment("e", OFF_OPS, threads=3, further_launches=further)], delegation=description
    )
    (peak,) = read_peaks(write_run(tmp_path / "run", run)).peaks
    assert (peak.precision, peak.moved_bytes, peak.threads, peak.launches) == (None, 24_000, 3, 3)
    assert (peak.low, peak.high) == pytest.approx((0.3, 0.6))
    assert peak.least_ns == 40_000.0


@pytest.mark.parametrize(
    "run",
    [
        replace(on_off_run(), meaningful=False, platform="emulator", delegation=described()),
        Run([Experiment("e", [Op("Convolution (NHWC, F32) IGEMM #1", 0)])], delegation=described()),
    ],
    ids=["emulated", "a clock that saw nothing"],
)  # fmt: skip
def test_no_peak_is_known_without_a_time(run: Run, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", run)
    with pytest.raises(TargetError, match="has no operator that was timed"):
        read_peaks(folder)


def test_an_operator_that_nothing_is_known_of_has_no_rate(tmp_path: Path) -> None:
    """Without the export's description nobody knows its work."""
    folder = write_run(tmp_path / "run", Run([Experiment("e", ON_OPS)]))
    with pytest.raises(TargetError, match="has no operator that was timed"):
        read_peaks(folder)
