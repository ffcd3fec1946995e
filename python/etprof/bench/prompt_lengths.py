"""From which length of a prompt SME2 pays: times of reading it with SME2 and without, by length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etprof.base.units import count_of
from etprof.statistics.effect import estimate_effect
from etprof.tables.comparisons import VERDICT_STYLES
from etprof.tables.table import Column, Table, speed_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.bench.rows import BenchRow
    from etprof.statistics.effect import Effect

_METRIC: Final = "prefill_tokens_per_second"


@dataclass(frozen=True)
class PromptLength:
    """One measured length: the experiment with SME2, and the one without of the same run."""

    length: int
    on: BenchRow
    off: BenchRow

    @property
    def effect(self) -> Effect | None:
        """Of the time that a token of the prompt takes; None without proven times of both."""
        metrics = [row.metric(_METRIC) for row in (self.off, self.on)]
        samples = [metric.samples if metric else () for metric in metrics]
        if not samples[0] or len(samples[0]) != len(samples[1]):
            return None
        times = ([1 / rate for rate in side] for side in samples)
        return estimate_effect(*times)

    @property
    def pays(self) -> bool:
        """Whether the interval lies above 1."""
        interval = self.effect.interval if self.effect else None
        return interval is not None and interval.low > 1

    @property
    def group(self) -> tuple[str, ...]:
        """The attributes that compared lengths have in common, in words."""
        unit, run = self.on.outcome.unit, self.on.run
        threads = count_of(run.threads or 0, "thread") if run else ""
        return unit.device.name, unit.model.name, unit.backend, unit.precision, threads


def pair_lengths(rows: Sequence[BenchRow]) -> list[PromptLength]:
    """Returns each generation's pairs of sme2 and off at equal threads, by group and length."""
    pairs = []
    for on in rows:
        length = on.outcome.unit.model.prompt_length
        if length is None or on.run is None or on.run.sme_mode != "sme2":
            continue
        pairs += [
            PromptLength(length, on, off)
            for off in rows
            if off.outcome is on.outcome
            and off.run is not None
            and (off.run.sme_mode, off.run.threads) == ("off", on.run.threads)
        ]
    return sorted(pairs, key=lambda pair: (pair.group, pair.length))


def break_even_length(pairs: Sequence[PromptLength]) -> int | None:
    """Returns the least measured length from which on SME2 pays at every one; None for none."""
    longest_without = max((pair.length for pair in pairs if not pair.pays), default=0)
    return min((pair.length for pair in pairs if pair.length > longest_without), default=None)


def conclude(pairs: Sequence[PromptLength]) -> list[dict[str, Any]]:
    """Says of each group from which measured length SME2 pays, for people and for machines."""
    groups: dict[tuple[str, ...], list[PromptLength]] = {}
    for pair in pairs:
        groups.setdefault(pair.group, []).append(pair)
    return [
        {
            **dict(zip(("device", "model", "backend", "precision", "threads"), group, strict=True)),
            "from_length": break_even_length(members),
            "times_are_proven": any(member.effect for member in members),
            "says": f"{', '.join(group)}: {_sentence(members)}",
        }
        for group, members in groups.items()
    ]


def _sentence(pairs: Sequence[PromptLength]) -> str:
    shortest = break_even_length(pairs)
    if shortest is not None:
        return (
            f"SME2 pays from a prompt of {count_of(shortest, 'token')} on: the interval lies above 1 "
            "there and at every longer one that was measured"
        )
    if any(pair.effect for pair in pairs):
        return "there is no measured length from which on the interval lies above 1"
    works = {pair.length: pair.on.prompt_work for pair in pairs}
    macs_by_length = {length: work.macs for length, work in works.items() if work is not None}
    busy = [length for length, macs in macs_by_length.items() if macs]
    counted = "nothing was counted"
    if macs_by_length:
        counted = f"products ran on SME at {len(busy)} of {count_of(len(macs_by_length), 'counted length')}"
    return f"times are unproven here, so nobody knows from which length SME2 pays; {counted}"


def prompt_length_table(rows: Sequence[BenchRow]) -> Table:
    """Returns a row for each pair."""
    return PROMPT_LENGTHS.of(pair_lengths(rows))


def _rate(name: str, title: str) -> Column:
    def read(pair: PromptLength) -> float | None:
        return getattr(pair, name.removesuffix("_rate")).value(_METRIC)  # type: ignore[no-any-return]

    return Column(name, "float64", "1/s", is_timed=True, title=title, of=read)


def _of_work(name: str) -> Any:  # noqa: ANN401 - a column's `of`
    return lambda pair: getattr(pair.on.prompt_work, name, None)


PROMPT_LENGTHS: Final = Table(
    "prompt_lengths",
    (
        Column("device", "string", visibility="several", of=lambda pair: pair.group[0]),
        Column("model", "string", visibility="several", of=lambda pair: pair.group[1]),
        Column("backend", "string", visibility="several", of=lambda pair: pair.group[2]),
        Column("precision", "string", visibility="several", of=lambda pair: pair.group[3]),
        Column("threads", "Int64", "count", of=lambda pair: pair.on.run.threads),
        Column("prompt_tokens", "Int64", "count", title="prompt", of=lambda pair: pair.length),
        _rate("off_rate", "off"),
        _rate("on_rate", "sme2"),
        *speed_up(lambda pair: pair.effect, title="off ÷ sme2",
                  says="time of a token of the prompt with SME off ÷ with SME2"),
        Column("verdict", "string", is_timed=True, styles=VERDICT_STYLES,
               of=lambda pair: pair.effect.verdict if pair.effect else None),
        Column("at_once", "Int64", "count", title="read at once", of=_of_work("at_once")),
        Column("sme_macs", "Int64", "count", title="MACs on SME", of=_of_work("macs")),
    ),
    title="Reading a prompt with SME2 and without, by its length",
)  # fmt: skip
"""One row per measured length; counted work also where times are unproven."""
