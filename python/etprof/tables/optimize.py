"""The tables of a search for a better program: before and after, and each step with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from etprof.base.text import join_names
from etprof.base.units import (
    MISSING,
    format_ratio,
    format_ratio_ends,
    format_share,
    format_size,
)
from etprof.run.optimization import exclusions_of, pareto_front, smallest_gain
from etprof.tables.table import Column, Section, Table, Visibility, speed_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from etprof.run.optimization import Candidate, Gain, Optimization, Trial


def _figures(
    of: Callable[[Any], Trial | None],
    macs: Callable[[Any], int],
    visibility: Visibility = "everywhere",
) -> tuple[Column, ...]:
    """The figures of a program; `of` finds it in a row's subject."""

    def value(name: str) -> Callable[[Any], Any]:
        def read(subject: Any) -> Any:  # noqa: ANN401 - each table has its own subjects
            trial = of(subject)
            return None if trial is None or trial.problem is not None else getattr(trial, name)

        return read

    def share(subject: Any) -> float | None:  # noqa: ANN401
        trial = of(subject)
        has_program = trial is not None and trial.problem is None
        return trial.sme2_share(macs(subject)) if trial is not None and has_program else None

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
        Column("transposes", "Int64", unit="count", visibility="page", of=value("transposes"),
               says="Inside the delegates"),
        Column("size_bytes", "Int64", unit="bytes", title="size", of=value("size_bytes"),
               says="Of the program"),
        Column("planned_bytes", "Int64", unit="bytes", title="planned memory", visibility="page",
               of=value("planned_bytes"), says="Of tensors outside delegates, in all arenas"),
        Column("sme2_calls", "Int64", unit="count", title="SME2 calls",
               of=counted("sme2_calls"), visibility="several",
               says="Calls of SME2 microkernels that compute, counted in one inference"),
        Column("snr_db", "float64", unit="dB", title="SNR against eager fp32", of=value("snr_db"),
               says="The least signal-to-noise ratio of all outputs against eager float32"),
        Column("worst_mode", "string", of=counted("worst_mode"), visibility="page",
               says="The SME mode whose outputs have the least SNR against eager float32, where all ran"),
        Column("worst_snr_db", "float64", unit="dB", title="SNR in the worst mode",
               of=counted("snr_db"), visibility="page", says="Their least signal-to-noise ratio"),
    )  # fmt: skip
    return tuple(
        replace(column, visibility=visibility) if visibility == "page" else column
        for column in columns
    )


def _gain(of: Callable[[Any], Sequence[Gain]]) -> tuple[Column, ...]:
    """The speedup with its interval and verdict; missing where nothing was timed."""

    def verdict(subject: Any) -> str | None:  # noqa: ANN401 - each table has its own subjects
        gain = smallest_gain(of(subject))
        return None if gain is None else gain.verdict

    return (
        *speed_up(lambda subject: smallest_gain(of(subject)), title="speedup with it",
                  says="Latency without ÷ with it, measured interleaved; of the method that gains least"),
        Column("verdict", "string", visibility="several", of=verdict, says="Whether that is beyond noise"),
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
        Column("kept", "boolean", visibility="several", of=lambda row: row[0].kept,
               says="Whether the result has it"),
        Column("operators", "Int64", unit="count", dropped_first=2, of=lambda row: row[0].operators,
               says="Operators that it replaced; missing for the lowering's"),
        *(replace(column, dropped_first=1) for column in _gain(lambda row: row[0].gains)),
        Column("why", "string", of=lambda row: row[0].why, says="What decided"),
        *_figures(lambda row: row[0].without, lambda row: row[1], "page"),
    ),
    title="steps",
    says="A rewrite, what was decided, and the program without it as evidence.",
)  # fmt: skip

PROGRAMS: Final = Table(
    "programs",
    (
        Column("precision", "string", of=lambda row: row.precision, says="Of the search"),
        Column("program", "string", of=lambda row: row.name, says="Which of its trials"),
        Column("rewrites", "string", of=lambda row: ", ".join(_choices(row.trial.without_idle())),
               says="That had something to change in it", empty="none"),
        *_figures(lambda row: row.trial, lambda row: row.macs),
        Column("front", "boolean", title="unbeaten", of=lambda row: row.is_on_front,
               says="No other program is at least as good in share, SNR and size together"),
    ),
    says="A program that was made, of this search and of those beside it.",
)  # fmt: skip


@dataclass(frozen=True)
class _ProgramRow:
    """A row of all programs."""

    precision: str
    name: str
    trial: Trial
    macs: int
    is_on_front: bool


_WITH_REWRITES: Final = "with rewrites"
"""What a search calls its result: whether that is better is what its figures say."""
CANDIDATES: Final = Table(
    "candidates",
    (
        Column("rewrite", "string", of=lambda candidate: candidate.rewrite, says="Its name"),
        Column("operators", "Int64", unit="count", of=lambda candidate: candidate.operators,
               says="Operators of the traced graphs that it would replace; missing for the "
               "lowering's, whose places are known once the model is lowered"),
        Column("changes", "string", of=lambda candidate: candidate.changes, says="What becomes of what"),
    ),
    title="what would be tried",
    says="A rewrite that a search would try.",
)  # fmt: skip


def candidates_table(candidates: Sequence[Candidate]) -> Table:
    """Returns a row for each that finds something to change, or may once the model is lowered."""
    idle = [candidate.rewrite for candidate in candidates if candidate.operators == 0]
    return CANDIDATES.of(
        (candidate for candidate in candidates if candidate.operators != 0), note=_idle_note(idle)
    )


def _idle_note(names: Sequence[str]) -> str:
    return f"nothing to change for {', '.join(names)}" if names else ""


def before_and_after(search: Optimization) -> Table:
    """Returns a row for the baseline and one for the result."""
    baseline, best = search.baseline, search.best
    macs = _macs(search)
    rows: list[tuple[str, Trial | None, int, Sequence[Gain]]] = [("as it is", baseline, macs, ())]
    if best is None or best.rewrites:
        rows.append((_WITH_REWRITES, best, macs, search.gains))
    return OPTIMIZED.of(
        rows,
        note="" if search.gains else "none of these figures is a time",
    )


def steps_of(search: Optimization, *, is_kept: bool | None = None) -> Table:
    """Returns a row for each step, those that were kept first; `is_kept` keeps only those."""
    tried = [step for step in search.steps if not step.is_idle and is_kept in {None, step.kept}]
    idle = [step.rewrite for step in search.steps if step.is_idle]
    return OPTIMIZE_STEPS.of(
        ((step, _macs(search)) for step in sorted(tried, key=lambda step: not step.kept)),
        title={None: "steps", True: "Steps that stayed", False: "Tried and rejected"}[is_kept],
        note="" if is_kept else _idle_note(idle),
    )


def programs_of(searches: Sequence[Optimization]) -> Table:
    """Returns a row for every program that was made, of several precisions."""
    every = [
        (search, trial) for search in searches for trial in search.trials if trial.problem is None
    ]
    front = pareto_front([(trial, _macs(search)) for search, trial in every])
    return PROGRAMS.of(
        _ProgramRow(search.precision, _name(search, trial), trial, _macs(search), is_on_front)
        for (search, trial), is_on_front in zip(every, front, strict=True)
    )


def _name(search: Optimization, trial: Trial) -> str:
    if not trial.rewrites:
        return "as it is"
    is_best = search.best is not None and trial.number == search.best.number
    return _WITH_REWRITES if is_best else f"trial {trial.number + 1}"


def _choices(trial: Trial) -> Iterator[str]:
    """Yields each rewrite with the modules that it leaves as they are."""
    for name in trial.rewrites:
        excluded = [text.partition("=")[2] for text in exclusions_of((name,), trial.exclusions)]
        yield f"{name} (not in {join_names(excluded)})" if excluded else name


def _macs(search: Optimization) -> int:
    return 0 if search.baseline is None else search.baseline.macs


def _changes(before: Trial, after: Trial) -> Iterator[str]:
    """Yields each figure that the rewrites changed, as it is without and with them."""
    basis = "counted" if after.counted else "predicted"

    def texts(trial: Trial) -> Iterator[tuple[str, str]]:
        transposes = MISSING if trial.transposes is None else str(trial.transposes)
        yield f"MACs on SME2 ({basis})", format_share(trial.sme2_share(before.macs))
        yield "operators outside the delegate", str(trial.outside)
        yield "delegate calls", str(trial.delegate_calls)
        yield "transposes in delegates", transposes
        yield "size", format_size(trial.size_bytes)

    for (figure, old), (_, new) in zip(texts(before), texts(after), strict=True):
        if old != new and MISSING not in {old, new}:
            yield f"{figure} {old} → {new}"


def headline(search: Optimization) -> str:
    """Says what the search came to, and what that rests on."""
    subject = f"{search.model} in {search.precision}"
    gain = smallest_gain(search.gains)
    if search.best is None or not search.best.rewrites:
        on = f" on {search.target}" if search.target else ""
        return f"{subject}: no rewrite makes the program better{on}"
    names = ", ".join(_choices(search.best))
    if gain is None:
        changes = ", ".join(_changes(search.baseline or search.best, search.best))
        return f"{subject}, with {names}: {changes or 'no figure changes'}; not timed"
    speed_up_text = format_ratio(gain.speed_up)
    if gain.low is not None and gain.high is not None:
        speed_up_text = format_ratio(gain.speed_up, (gain.high - gain.low) / 2)
        low, high = format_ratio_ends(gain.speed_up, gain.low, gain.high)
        speed_up_text = f"{speed_up_text} (95 % interval {low} … {high})"
    return f"{subject}, with {names}: {gain.verdict} on {search.target}, speedup {speed_up_text}"


def sections(search: Optimization, other_searches: Sequence[Optimization]) -> tuple[Section, ...]:
    """Returns the page: the result, what stayed, what was rejected, and every program.

    `other_searches` are those of the same model in other precisions.
    """
    without = "Figures are those of the program without it, all else as in the result."
    rejected = steps_of(search, is_kept=False)
    return (
        Section("result", "Result", (before_and_after(search),), lead=headline(search)),
        Section("kept", "Steps that stayed", (steps_of(search, is_kept=True),), says=without),
        Section("rejected", "Tried and rejected", (rejected,),
                says=without if rejected.rows else "None: every rewrite that changes something stayed."),
        Section("programs", "Every program", (programs_of((search, *other_searches)),),
                says="To the right is more work on SME2, up is nearer to eager float32, a small "
                "dot is a small program. None of this is a time."),
    )  # fmt: skip
