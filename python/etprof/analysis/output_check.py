"""Compares outputs as numbers: of two experiments, or of one and the eager model.

A faster wrong answer is no speedup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.run.accuracy import (
    QUESTIONS,
    export_place,
    find_floors,
    format_differing,
    judge_lowering,
    judge_precision,
    unknown,
    worst_step,
)
from etprof.statistics.likeness import compare, least_equal_share, number_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.run.accuracy import Floors, Verdict
    from etprof.run.load import LoadedLaunches, Run
    from etprof.run.program import LoadedProgram
    from etprof.run.tensors import StoredTensor
    from etprof.statistics.likeness import Parity

_MODE_MINIMUM_SNR_DB: Final = {"fp32": 90.0, "fp16": 40.0, "bf16": 30.0, "int8": 25.0}
"""Least signal-to-noise ratio between two SME modes of one program: same weights, same inputs, so
only the order of sums and the rounding between kernels differ."""


def mode_tolerance_db(data_types: set[str]) -> float:
    """Returns the SNR to expect between SME modes, by the operators' plain data types."""
    quantised = any(name.startswith("Q") for name in data_types)
    halves = (half for name, half in {"BF16": "bf16", "F16": "fp16"}.items() if name in data_types)
    return _MODE_MINIMUM_SNR_DB["int8" if quantised else next(halves, "fp32")]


@dataclass(frozen=True)
class OutputCheck:
    """One output of an experiment beside another's, or the eager model's."""

    candidate: str
    against: str
    parity: Parity
    minimum_snr_db: float
    """Least signal-to-noise ratio between two ways to run one program at its precision."""

    @property
    def least_equal_share(self) -> float | None:
        """Of labels, which have no ratio: how many must be equal; None of other numbers."""
        has_ratio = self.parity.equal_share is None or self.parity.snr_db is not None
        return None if has_ratio else least_equal_share(self.minimum_snr_db)

    @property
    def is_within(self) -> bool:
        """Whether they agree within the tolerance."""
        return self.parity.is_within(self.minimum_snr_db)

    def __str__(self) -> str:
        if self.parity.identical:
            return f"output {self.parity.index} is identical"
        if (least_share := self.least_equal_share) is not None:
            differing, most = map(format_differing, (self.parity.equal_share or 0.0, least_share))
            return f"output {self.parity.index}: {differing} of its whole numbers differ (at most {most})"
        snr = self.parity.snr_db
        ratio = "no finite error" if snr is None else f"{snr:.1f} dB signal to noise"
        return (
            f"output {self.parity.index}: {ratio} (at least {self.minimum_snr_db:.0f}), largest "
            f"difference {self.parity.max_abs:.3g}"
        )


def describe_mismatches(checks: Iterable[OutputCheck]) -> tuple[str, ...]:
    """Says which outputs are something else than the other side's, each once."""
    texts = (
        f"{check.candidate} computes something else than {check.against}: {check}"
        for check in checks
        if not check.is_within
    )
    return tuple(dict.fromkeys(texts))


def check_unsplit(run: Run) -> Iterator[OutputCheck]:
    """Compares with SME off what was computed at equal threads and is in no comparison.

    Those are experiments without an ETDump: the program's precision says how they may differ, and
    where nobody tells it, they may as the widest does.
    """
    every = (*run.experiments, *run.others)
    for off in (experiment for experiment in every if experiment.sme == "off"):
        name = off.program.precision or ""
        kind = next(
            (precision for precision in _MODE_MINIMUM_SNR_DB if name.startswith(precision)), "int8"
        )
        alike = [experiment for experiment in every if experiment.program is off.program]
        for on in (
            experiment
            for experiment in alike
            if experiment.sme != "off" and experiment.threads == off.threads
        ):
            if on in run.others or off in run.others:
                yield from compare_outputs(on, off, _MODE_MINIMUM_SNR_DB[kind])


def compare_outputs(
    value: LoadedLaunches, reference: LoadedLaunches, tolerance: float
) -> tuple[OutputCheck, ...]:
    """Compares all outputs that both kept whole.

    One that has another size on the other side is left out, as a missing one is; within a program
    one of another type too. Of a program with state nothing is compared at different inferences.
    """
    has_state = value.program.has_state or reference.program.has_state
    if has_state and value.output_step != reference.output_step:
        return ()
    return tuple(
        OutputCheck(value.name, reference.name, parity, tolerance)
        for index, actual in value.outputs.items()
        if (expected := reference.outputs.get(index)) is not None
        and (actual.dtype == expected.dtype or value.program.name != reference.program.name)
        and (parity := _compare_stored(index, actual, expected)) is not None
    )


def program_tolerance_db(first: LoadedProgram, second: LoadedProgram) -> float | None:
    """Returns the SNR to expect between two programs of one model on the same inputs.

    Each may be as far from the float32 model as its precision allows, and two errors that have
    nothing to do with each other add up in power. None for other models or inputs, and where a
    precision's limit is not known.
    """
    floors = [_floors(program) for program in (first, second)]
    names = [program.model.name if program.model else None for program in (first, second)]
    if names[0] != names[1] or not first.has_same_inputs(second):
        return None
    if floors[0] is None or floors[1] is None:
        return None
    errors = [10 ** (-limits.snr_db / 10) for limits in floors if limits]
    return float(-10 * math.log10(math.fsum(errors)))


def check_references(experiment: LoadedLaunches) -> tuple[OutputCheck, ...]:
    """Compares an experiment's outputs with its own eager model's, which the export wrote.

    Empty where they cannot be compared: other inputs than the export's, no references beside the
    program (any more), or a precision whose limits are not known.
    """
    floors = _floors(experiment.program)
    if floors is None:
        return ()
    expected = experiment.program.expect(experiment.output_step).references
    parities = _compare_with(experiment.outputs, expected, floors.snr_db)
    return tuple(
        OutputCheck(experiment.name, "eager", parity, floors.snr_db) for parity in parities
    )


def judge_export(program: LoadedProgram) -> tuple[Verdict, ...]:
    """Returns what the export says of a program's outputs, unknown where it does not."""
    if program.measured is None:
        return ()
    check, where = program.method.check if program.method else None, export_place(program.name)
    text = (program.quality.verdict.model_copy(update={"where": where}),) if program.quality else ()
    if check is None or not check.verdicts:
        why = (
            "export.json has no verdicts, because an earlier etprof wrote it; export the model again"
            if program.method
            else "the program came without export.json, so its expected outputs are unknown"
        )
        return (*(unknown(question, why, where) for question in QUESTIONS), *text)
    return (*(verdict.model_copy(update={"where": where}) for verdict in check.verdicts), *text)


def judge_outputs(experiment: LoadedLaunches) -> tuple[Verdict, ...]:
    """Answers both questions on what an experiment computed, as far as the export's files tell.

    Of a program with state, each inference that was kept is compared with the same of the eager model.
    """
    program, name = experiment.program, experiment.name
    floors, method = _floors(program), program.method
    if floors is None or method is None:
        return ()
    lowering: dict[int, Verdict] = {}
    precision: dict[int, Verdict] = {}
    for step, outputs in experiment.steps.items():
        expected = program.expect(step)
        lowered = _compare_with(outputs, expected.converted, floors.snr_db)
        cost_parities = _compare_with(expected.converted, expected.references, floors.snr_db)
        costs = {parity.index: parity for parity in cost_parities}
        if lowered:
            lowering[step] = judge_lowering(lowered, program.precision, costs, name)
        good = _compare_with(outputs, expected.references, floors.snr_db)
        if good:
            precision[step] = judge_precision(
                good, floors, name, precision=program.precision, costs=costs
            )
    verdicts = tuple(worst_step(steps) for steps in (lowering, precision) if steps)
    if not verdicts and program.has_state and experiment.steps and program.references:
        last = max(experiment.steps)
        why = (
            f"its outputs are of inference {last}, and the export knows the first "
            f"{1 + len(method.steps)}; measure with a runner of this version"
        )
        return tuple(unknown(question, why, name) for question in QUESTIONS)
    return verdicts


def _floors(program: LoadedProgram) -> Floors | None:
    """Returns the floors that the export was held to; those of its precision where none are told."""
    check = program.method.check if program.method else None
    usual = find_floors(program.precision)
    if check is not None and check.floors is not None:
        return check.floors
    if check is None or check.minimum_snr_db is None or usual is None:
        return usual
    return usual.model_copy(update={"snr_db": check.minimum_snr_db})


def _compare_with(
    outputs: Mapping[int, StoredTensor], expected: Mapping[int, StoredTensor], least_db: float
) -> list[Parity]:
    """Compares every output that is expected and was kept whole."""
    pairs = [
        _compare_stored(index, actual, expected[index], least_db)
        for index, actual in outputs.items()
        if index in expected
    ]
    return [pair for pair in pairs if pair is not None]


def _compare_stored(
    index: int, value: StoredTensor, reference: StoredTensor, least_db: float | None = None
) -> Parity | None:
    """Compares two tensors; None when one is damaged, which is told, or is of another size."""
    if value.problem is not None or reference.problem is not None:
        return None
    actual, expected = value.values(), reference.values()
    if actual.size != expected.size:
        return None
    kind = number_kind(value.dtype)
    return compare(index, actual, expected, value.columns, least_db=least_db, kind=kind)
