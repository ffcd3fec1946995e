"""Measures what a device can do at most: products and streams, through the runner that is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.insight import describe_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import TargetError
from etprof.config import Config, ExperimentConfig, MeasurementConfig, ProgramConfig
from etprof.run.load import Run
from etprof.run.peaks import Peak, Peaks
from etprof.targets.peaks import device_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from etprof.analysis.insight import ExperimentInsight, OperatorDetail
    from etprof.config import TargetConfig
    from etprof.run.manifest import Manifest

PRODUCTS: Final = ("Product256", "Product512", "Product1024")
STREAMS: Final = (
    "Stream8K", "Stream128K", "Stream2M", "Stream64M", "Sum12K", "Sum192K", "Sum3M", "Sum96M",
)  # fmt: skip
"""Of one tensor read for each that is written, and of two."""
_INFERENCES: Final = 40
"""Of an operator launch, so that the clock's whole microseconds even out."""


def peak_config(  # noqa: PLR0913 - what, where, how
    programs: Mapping[str, Path], target: TargetConfig, *, modes: Sequence[str],
    threads: Sequence[int], launches: int, folder: Path,
) -> Config:  # fmt: skip
    """Returns the config: every program in every mode at every number of threads, interleaved.

    A peak is of the operator alone, as operators of reports are, so its operator launches count.
    """
    model, *further = programs
    return Config(
        model=programs[model],
        programs={name: ProgramConfig(model=programs[name]) for name in further},
        output_root=folder,
        target=target,
        experiments=tuple(
            ExperimentConfig.model_validate(
                {"name": f"{name}_{mode}", "sme": mode, "threads": tuple(threads), "iterations": 2}
                | ({} if name == model else {"program": name})
            )
            for name in programs
            for mode in modes
        ),
        measurement=MeasurementConfig(
            blocks=1,
            min_seconds=0.01,
            operator_iterations=_INFERENCES * launches,
            operator_launches=launches,
            kernels=False,
        ),
    )


def read_peaks(folder: Path) -> Peaks:
    """Takes the peaks from a finished run of `peak_config`; raises TargetError without any."""
    run = Run.load(folder)
    peaks = tuple(_peaks(describe_run(analyze_run(run)).experiments))
    if run.manifest is None or not peaks or not run.is_timed:
        msg = f"{folder} has no operator that was timed, so no peak is known; measure again"
        raise TargetError(msg)
    return Peaks(
        device=device_of(run.manifest),
        measured_at=run.manifest.created_at or "",
        executorch_version=_executorch(run.manifest),
        peaks=peaks,
    )


def _executorch(manifest: Manifest) -> str | None:
    build = manifest.runner.build if manifest.runner else {}
    version = build.get("executorch_version") or manifest.pins.get("executorch")
    return str(version) if version else None


def _peaks(experiments: Sequence[ExperimentInsight]) -> Iterator[Peak]:
    for insight in experiments:
        model, experiment = insight.experiment.program.model, insight.experiment
        main = max(insight.details, key=_work, default=None)
        times = main.row.times if main else None
        if model is None or main is None or times is None or not (times.total_ns and _work(main)):
            continue
        macs = main.attribution.macs if main.attribution else None
        # A launch whose clock saw nothing has no rate.
        means = [mean for mean in times.launches_ns if mean > 0]
        rates = [(2 * macs if macs else _work(main)) / mean for mean in means]
        yield Peak.model_validate({
            "program": model.name,
            "precision": model.precision if macs else None,
            "moved_bytes": None if macs else _work(main),
            "sme": experiment.sme,
            "threads": experiment.threads,
            "launches": len(rates),
            "low": min(rates),
            "high": max(rates),
            "least_ns": min(means),
        })  # fmt: skip


def _work(detail: OperatorDetail) -> int:
    """Multiply-accumulates, which every product has more of than a stream has bytes; else bytes."""
    attribution = detail.attribution
    return (attribution.macs or attribution.moved_bytes or 0) if attribution else 0
