"""The facts of a program and its run that are the same in every repetition, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.base.records import Count, Name, Record
from etprof.run.accuracy import export_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.attribution import Attribution
    from etprof.analysis.split.evidence import OperatorEvidence
    from etprof.run.accuracy import Verdict
    from etprof.run.program import LoadedProgram


class LayerWork(Record):
    """Where the operators go that come from one layer, in one inference.

    Only convolutions and matrix products are counted as on SME or off it: nothing else can be.
    """

    layer: Name = ""
    """Path of the module; empty for the root."""
    source: Name = ""
    """The model's line, such as `model.py:24`; empty where nobody knows."""
    sme_operators: Count = 0
    other_operators: Count = 0
    sme_macs: Count = 0
    """Multiply-accumulates of the model itself, not of a kernel's tiles."""
    other_macs: Count = 0
    outside: Count = 0
    """Operators outside delegates."""

    @property
    def macs(self) -> int:
        """Wherever they are done."""
        return self.sme_macs + self.other_macs

    @property
    def title(self) -> str:
        """The layer with its line."""
        if self.layer and self.source:
            return f"{self.layer} ({self.source})"
        return self.layer or self.source or "operators of no known layer"


class ExactFacts(Record):
    """What is known of a run without any noise; None for what nobody knows."""

    layers: tuple[LayerWork, ...] = ()
    has_routes: bool = False
    """Whether it is known of every convolution and matrix product if it ran on SME."""
    delegate_calls: Count | None = None
    operators_outside: Count | None = None
    program_bytes: Count | None = None
    planned_bytes: Count | None = None
    """Of the method's arenas."""
    output_db: float | None = None
    """Signal to noise of the worst output against the float32 model."""


def facts_of_program(program: LoadedProgram, verdicts: Sequence[Verdict]) -> ExactFacts:
    """Returns what a program's files say, whatever ran."""
    report, model = program.report, program.model
    summary = report.summary if report else None
    memory = report.memory if report else None
    place = export_place(program.name)
    distances = [
        verdict.snr_db
        for verdict in verdicts
        if verdict.question == "precision" and verdict.where == place
    ]
    return ExactFacts(
        delegate_calls=summary.delegate_calls if summary else None,
        operators_outside=summary.undelegated_operators if summary else None,
        program_bytes=model.size_bytes if model else None,
        planned_bytes=sum(memory.arena_bytes) if memory else None,
        output_db=next(iter(distances), None),
    )


def facts_of_experiment(experiment: ExperimentAnalysis, verdicts: Sequence[Verdict]) -> ExactFacts:
    """Returns what the program's files say, and where each layer's operators ran."""
    facts = facts_of_program(experiment.program, verdicts)
    pairs = list(zip(experiment.evidence, experiment.attributions, strict=True))
    products = [evidence for evidence, _ in pairs if evidence.could_use_sme2]
    return facts.model_copy(
        update={
            "layers": tuple(_layers(pairs)),
            "has_routes": all(product.route.answer != "unknown" for product in products),
        }
    )


def _layers(
    pairs: Sequence[tuple[OperatorEvidence, Attribution | None]],
) -> Iterator[LayerWork]:
    by_layer: dict[tuple[str, str], LayerWork] = {}
    for evidence, attribution in pairs:
        origin = attribution.origin if attribution else None
        layer = origin.module_path if origin else ""
        source = str(origin.source) if origin and origin.source else ""
        macs = (attribution.macs if attribution else None) or 0
        work = by_layer.setdefault((layer, source), LayerWork(layer=layer, source=source))
        amounts = dict[str, int]()
        if evidence.could_use_sme2:
            side = "sme" if evidence.route.takes_sme else "other"
            amounts = {f"{side}_operators": 1, f"{side}_macs": macs}
        if not evidence.is_delegated:
            amounts["outside"] = 1
        sums = {name: getattr(work, name) + amount for name, amount in amounts.items()}
        by_layer[layer, source] = work.model_copy(update=sums)
    yield from by_layer.values()
