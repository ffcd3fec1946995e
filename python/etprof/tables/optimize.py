"""The tables of a search for a better program: before and after, and each step with its evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from etprof.optimize.trial import least_gain
from etprof.tables.table import Column, Place, Table, speed_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.optimize.trial import Candidate, Gain, Optimization, Trial


def _figures(
    of: Callable[[Any], Trial | None], macs: Callable[[Any], int], place: Place = "everywhere"
) -> tuple[Column, ...]:
    """The figures of a program; `of` finds it in a row's subject."""

    def value(name: str) -> Callable[[Any], Any]:
        def read(subject: Any) -> Any:  # noqa: ANN401 - each table has its own subjects
            trial = of(subject)
            return None if trial is None or trial.problem is not None else getattr(trial, name)

        return read

    def share(subject: Any) -> float | None:  # noqa: ANN401
        trial = of(subject)
        known = trial is not None and trial.problem is None
        return trial.sme2_share(macs(subject)) if trial is not None and known else None

    def counted(name: str) -> Callable[[Any], Any]:
        def read(subject: Any) -> Any:  # noqa: ANN401
            trial = of(subject)
            return None if trial is None else getattr(trial.counted, name, None)

        return read

    columns = (
        Column("sme2_share", "float64", unit="share", title="MACs on SME2", of=share,
               says="Of the original model's, counted on a target that counts, else predicted; what "
               "rewrites add cannot raise it"),
        Column("delegate_calls", "Int64", unit="count", of=value("delegate_calls"),
               says="Calls of the delegate"),
        Column("outside", "Int64", unit="count", of=value("outside"),
               says="Calls of portable kernels"),
        Column("size_bytes", "Int64", unit="bytes", title="size", of=value("size_bytes"),
               says="Of the program"),
        Column("sme2_calls", "Int64", unit="count", title="SME2 calls",
               of=counted("sme2_calls"), place="several",
               says="Calls of SME2 microkernels that compute, counted in one inference"),
        Column("snr_db", "float64", unit="dB", title="from eager fp32", of=value("snr_db"),
               says="The least signal-to-noise ratio of all outputs against eager float32"),
        Column("worst_mode", "string", of=counted("worst_mode"), place="page",
               says="The SME mode whose outputs are farthest from eager float32, where all ran"),
        Column("worst_snr_db", "float64", unit="dB", title="in the worst mode",
               of=counted("snr_db"), place="page", says="How far those are"),
    )  # fmt: skip
    return tuple(replace(each, place=place) if place == "page" else each for each in columns)


def _gain(of: Callable[[Any], Sequence[Gain]]) -> tuple[Column, ...]:
    """The speed-up with its interval and verdict; missing where nothing was timed."""

    def verdict(subject: Any) -> str | None:  # noqa: ANN401 - each table has its own subjects
        found = least_gain(of(subject))
        return None if found is None else found.verdict

    return (
        *speed_up(lambda subject: least_gain(of(subject)), title="speed-up with it",
                  says="Latency without ÷ with it, measured in turns; of the method that gains least"),
        Column("verdict", "string", place="several", of=verdict, says="Whether that is beyond noise"),
    )  # fmt: skip


OPTIMIZED: Final = Table(
    "optimized",
    (
        Column("program", "string", title="", of=lambda row: row[0], says="Which of the two"),
        *_figures(lambda row: row[1], lambda row: row[2]),
        *_gain(lambda row: row[3]),
    ),
    says="The program as it is, and the best one that was found.",
)
OPTIMIZE_STEPS: Final = Table(
    "optimize_steps",
    (
        Column("rewrite", "string", of=lambda row: row[0].rewrite, says="Its name"),
        Column("kept", "boolean", of=lambda row: row[0].kept, says="Whether the result has it"),
        Column("operators", "Int64", unit="count", of=lambda row: row[0].operators,
               says="Operators that it replaced; missing for the lowering's"),
        *_gain(lambda row: row[0].gains),
        Column("why", "string", of=lambda row: row[0].why, says="What decided"),
        *_figures(lambda row: row[0].without, lambda row: row[1], "page"),
    ),
    title="steps",
    says="A rewrite, what was decided, and the program without it as evidence.",
)  # fmt: skip

CANDIDATES: Final = Table(
    "candidates",
    (
        Column("rewrite", "string", of=lambda each: each.rewrite, says="Its name"),
        Column("operators", "Int64", unit="count", of=lambda each: each.operators,
               says="Operators of the traced graphs that it would replace; missing for the "
               "lowering's, whose places are known once the model is lowered"),
        Column("changes", "string", of=lambda each: each.changes, says="What becomes of what"),
    ),
    title="what would be tried",
    says="A rewrite that a search would try.",
)  # fmt: skip


def candidates(found: Sequence[Candidate]) -> Table:
    """Returns a row for each that finds something to change, or may once the model is lowered."""
    idle = [each.rewrite for each in found if each.operators == 0]
    return CANDIDATES.of((each for each in found if each.operators != 0), note=_idle_note(idle))


def _idle_note(names: Sequence[str]) -> str:
    return f"nothing to change for {', '.join(names)}" if names else ""


def before_and_after(found: Optimization) -> Table:
    """Returns a row for the baseline and one for the result."""
    baseline, best = found.baseline, found.best
    macs = 0 if baseline is None else baseline.macs
    return OPTIMIZED.of(
        [("as it is", baseline, macs, ()), ("optimized", best, macs, found.gains)],
        note="" if found.gains else "none of these figures is a time",
    )


def steps_of(found: Optimization) -> Table:
    """Returns a row for each step, those that were kept first."""
    macs = 0 if found.baseline is None else found.baseline.macs
    tried = [each for each in found.steps if not each.is_idle]
    ordered = sorted(tried, key=lambda each: not each.kept)
    idle = [each.rewrite for each in found.steps if each.is_idle]
    return OPTIMIZE_STEPS.of(((each, macs) for each in ordered), note=_idle_note(idle))
