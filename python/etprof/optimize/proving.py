"""What a target proves of programs: counted kernels and outputs in every mode, or times in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import TargetError
from etprof.base.records import SME_ON
from etprof.config import Config
from etprof.measuring.configured import measure_config
from etprof.report_files import write_report_files
from etprof.run.accuracy import AT_EXPORT
from etprof.run.load import Run
from etprof.run.optimization import Gain, KernelCounts
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.analysis.assessment import Assessment
    from etprof.config import TargetConfig
    from etprof.measuring.configured import Listener
    from etprof.targets import Target

_PLAIN: Final = "without"
_REWRITTEN: Final = "with"


@dataclass(frozen=True)
class TargetEvaluator:
    """A target, and how programs are launched there."""

    target: Target
    config: TargetConfig
    listener: Listener
    threads: int | None = None
    """None: all that the target has."""
    blocks: int | None = None

    @property
    def proves_times(self) -> bool:
        """Whether programs can be timed there; else their kernels are counted."""
        return proves_times(self.target.platform)

    def count(self, program: Path, methods: Sequence[str], run: Path) -> KernelCounts:
        """Counts the kernels of every method, and holds the outputs of every SME mode to eager."""
        calls = macs = 0
        ratios, problems = {}, []
        for method in methods:
            experiments = [{"name": mode, "sme": mode} for mode in self.target.sme_modes()]
            assessment = self._measure(
                run / method, experiments, {"model": program, "method": method}
            )
            counted = assessment.run.counted.get("sme2")
            calls += 0 if counted is None else counted.count_level("sme2")
            macs += _macs_on_sme2(assessment)
            for mode, checks in assessment.run.eager_checks.items():
                snrs_db = [
                    check.parity.snr_db for check in checks if check.parity.snr_db is not None
                ]
                ratios.update({(method, mode): min(snrs_db)} if snrs_db else {})
            problems += [
                verdict.text
                for verdict in assessment.run.verdicts
                if verdict.answer == "failed" and not verdict.where.startswith(AT_EXPORT)
            ]
        worst = min(ratios, key=lambda key: ratios[key], default=None)
        return KernelCounts(
            sme2_calls=calls,
            macs_on_sme2=macs,
            worst_mode=None if worst is None else worst[1],
            snr_db=None if worst is None else ratios[worst],
            problem=next(iter(problems), None),
        )

    def time_in_turns(
        self, candidate: Path, reference: Path, methods: Sequence[str], run: Path
    ) -> tuple[Gain, ...]:
        """Measures both in turns, method by method; raises TargetError where a launch fails."""
        return tuple(self._time(candidate, reference, method, run) for method in methods)

    def _time(self, candidate: Path, reference: Path, method: str, run: Path) -> Gain:
        modes = self.target.sme_modes()
        mode = next((mode for mode in modes if mode in SME_ON), modes[0])
        experiments = [
            {"name": _PLAIN, "sme": mode},
            {"name": _REWRITTEN, "sme": mode, "program": _REWRITTEN},
        ]
        run_folder = run / method
        assessment = self._measure(
            run_folder,
            experiments,
            {
                "model": reference,
                "method": method,
                "programs": {_REWRITTEN: {"model": candidate, "method": method}},
            },
        )
        comparison = assessment.primary_comparison
        effect = None if comparison is None else comparison.latency
        if effect is None:
            raise TargetError(f"{run_folder} has no times of both programs; run the command again")
        interval = effect.interval
        failed = {
            verdict.where: verdict.text
            for verdict in assessment.run.verdicts
            if verdict.answer == "failed"
        }
        return Gain(
            method=method,
            sme=mode,
            pairs=effect.pairs,
            speed_up=effect.speed_up,
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            verdict=effect.verdict,
            run=f"{run.parent.name}/{run.name}/{method}",
            problem=None if _PLAIN in failed else failed.get(_REWRITTEN),
        )

    def _measure(
        self, run: Path, experiments: Sequence[dict[str, Any]], fields: dict[str, Any]
    ) -> Assessment:
        """Measures, and reads what came of it; wrong outputs are the caller's to judge."""
        measurement: dict[str, Any] = {"allow_inaccurate": True, "operator_iterations": 1}
        if self.blocks is not None and self.proves_times:
            measurement["blocks"] = self.blocks
        threads = self.threads or self.target.default_threads()
        config = Config(
            output_root=run,
            target=self.config,
            experiments=[{**experiment, "threads": threads} for experiment in experiments],
            measurement=measurement,
            **fields,
        )
        measured = measure_config(config, self.target, self.listener)
        if measured.errors:
            raise TargetError(f"{measured.errors[0]}; {run} has what was launched")
        assessment = assess_run(analyze_run(Run.load(run)))
        write_report_files(assessment, run)
        return assessment


def _macs_on_sme2(assessment: Assessment) -> int:
    """Returns the multiply-accumulates of operators whose SME2 microkernels were counted."""
    return sum(
        (detail.attribution.macs or 0) if detail.attribution else 0
        for experiment in assessment.insight.experiments
        if experiment.experiment.sme == "sme2"
        for detail in experiment.details
        if detail.evidence.route.answer == "proven" and detail.evidence.level == "sme2"
    )
