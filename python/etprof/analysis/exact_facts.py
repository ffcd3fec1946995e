"""The facts of a program and its run that are the same in every repetition, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from etprof.base.records import Count, Name, Record
from etprof.base.units import format_count, format_value
from etprof.run.accuracy import export_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.attribution import Attribution
    from etprof.analysis.split.evidence import OperatorEvidence
    from etprof.run.accuracy import Verdict
    from etprof.run.program import LoadedProgram

Direction = Literal["more", "fewer", "neither"]
EXACT_THRESHOLD: Final = 0.01
"""Of a value that never varies, where no other is asked for."""
_OUTPUT_TOLERANCE_DB: Final = 3.0
"""Twice the error power: retrained weights alone move the distance by less."""


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


@dataclass(frozen=True)
class ExactMetric:
    """One metric without noise, and which way is better."""

    label: str
    unit: str
    better: Direction
    value_of: Callable[[ExactFacts], float | None]
    counterpart: Callable[[ExactFacts], float] | None = None
    """What grows where work that this metric counts goes elsewhere."""
    describe_layer: Callable[[LayerWork, LayerWork], str] | None = None
    """What became of a layer; empty for nothing."""
    tolerance: Callable[[float], float] = lambda _: 0.0
    """The change that is none, by the value before."""

    @property
    def title(self) -> str:
        """The label within a sentence, and as a column's head."""
        return self.label[0].lower() + self.label[1:]


def _sum_of(name: str) -> Callable[[ExactFacts], float]:
    return lambda facts: sum(getattr(layer, name) for layer in facts.layers)


def _of_routes(value_of: Callable[[ExactFacts], float]) -> Callable[[ExactFacts], float | None]:
    return lambda facts: value_of(facts) if facts.has_routes and facts.layers else None


def _sme_share(facts: ExactFacts) -> float:
    macs = sum(layer.macs for layer in facts.layers)
    return sum(layer.sme_macs for layer in facts.layers) / macs if macs else 0.0


def _model_macs(facts: ExactFacts) -> float | None:
    return sum(layer.macs for layer in facts.layers) if facts.layers else None


def _describe_route(before: LayerWork, now: LayerWork) -> str:
    """Says which way a layer's products went."""
    lost_operators = before.sme_operators - now.sme_operators
    if lost_operators > 0 and now.other_operators > before.other_operators:
        return f"left SME with {format_count(now.other_macs)} multiply-accumulates"
    if lost_operators < 0 and now.other_operators < before.other_operators:
        return f"runs on SME now, {format_count(now.sme_macs)} multiply-accumulates"
    if now.other_macs != before.other_macs:
        return f"off SME {format_count(before.other_macs)} → {format_count(now.other_macs)}"
    if now.sme_macs != before.sme_macs:
        return f"on SME {format_count(before.sme_macs)} → {format_count(now.sme_macs)}"
    return ""


def _describe_macs(before: LayerWork, now: LayerWork) -> str:
    if now.macs == before.macs:
        return ""
    return f"{format_count(before.macs)} → {format_count(now.macs)}"


def _describe_outside(before: LayerWork, now: LayerWork) -> str:
    if now.outside == before.outside:
        return ""
    return f"{format_count(before.outside)} → {format_count(now.outside)} outside"


def _of_size(value: float) -> float:
    return EXACT_THRESHOLD * value


EXACT_METRICS: Final[Mapping[str, ExactMetric]] = {
    "sme_operators": ExactMetric(
        "Operators on SME", "count", "more", _of_routes(_sum_of("sme_operators")),
        _sum_of("other_operators"), _describe_route,
    ),
    "sme_share": ExactMetric(
        "Share of work on SME", "share", "more", _of_routes(_sme_share),
        _sum_of("other_macs"), _describe_route,
    ),
    "model_macs": ExactMetric(
        "Multiply-accumulates of the model", "count", "neither", _model_macs,
        describe_layer=_describe_macs,
    ),
    "delegate_calls": ExactMetric(
        "Delegate calls", "count", "fewer", lambda facts: facts.delegate_calls,
        describe_layer=_describe_outside,
    ),
    "operators_outside": ExactMetric(
        "Operators outside delegates", "count", "fewer", lambda facts: facts.operators_outside,
        describe_layer=_describe_outside,
    ),
    "program_bytes": ExactMetric(
        "Program", "bytes", "fewer", lambda facts: facts.program_bytes, tolerance=_of_size
    ),
    "planned_bytes": ExactMetric(
        "Planned memory", "bytes", "fewer", lambda facts: facts.planned_bytes, tolerance=_of_size
    ),
    "output_db": ExactMetric(
        "Outputs against float32", "dB", "more", lambda facts: facts.output_db,
        tolerance=lambda _: _OUTPUT_TOLERANCE_DB,
    ),
}  # fmt: skip


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


def describe_value(unit: str, value: float | None) -> str:
    """Formats a value as exactly as it is compared."""
    return format_count(value) if unit == "bytes" else format_value(unit, value)
