"""What was timed: latencies, costs of measuring, threads, and what a language model generated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from etprof.analysis.generation import LEAST_TOKENS
from etprof.analysis.split.thread_map import build_thread_map
from etprof.base.records import sme_label
from etprof.base.text import clean
from etprof.base.units import count_of
from etprof.tables.comparisons import VERDICT_STYLES
from etprof.tables.table import Column, Section, Table, estimate, speed_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etprof.analysis.generation import GenerationSpeed
    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.analysis.split.thread_map import ThreadCell, ThreadMap
    from etprof.run.directory import BlockMetrics, GeneratedTokens
    from etprof.statistics.effect import Effect
    from etprof.statistics.summary import BlockedMedian

_SHOWN_TOKENS: Final = 24
_PERCENTILES: Final = {0.9: "90th percentile", 0.99: "99th percentile"}
_LONGEST_TEXT: Final = 100_000
"""Characters of what was read and generated: more than a screen is no name, and is shown."""


class _Quantity(NamedTuple):
    """One row: a median over launches, or what was read once."""

    experiment: str
    quantity: str
    unit: str
    value: float | None
    summary: BlockedMedian | None = None


class _ThreadPoint(NamedTuple):
    """One row: a mode at a thread count."""

    cell: ThreadCell
    effect: Effect | None
    is_best: bool


def _quantities(experiment: ExperimentAnalysis) -> Iterator[_Quantity]:
    name, latency, speed = experiment.name, experiment.latency, experiment.generation
    if latency is not None:
        inferences = f"Inference ({count_of(latency.samples.count, 'sample')}"
        if latency.inferences_per_sample > 1:
            inferences += f" of up to {latency.inferences_per_sample} inferences"
        if latency.is_traced:
            inferences += ", event tracer on"
        timed = (
            ("Load", latency.load),
            ("First inference", latency.first_inference),
            (f"{inferences})", latency.steady),
            ("Giving the inputs", latency.input_setup),
            ("Taking the outputs", latency.output_readback),
        )
        for label, summary in timed:
            if summary is None:
                continue
            yield _Quantity(name, label, "ns", summary.median, summary)
        yield _Quantity(name, "99th percentile", "ns", latency.samples.p99)
        yield _Quantity(name, "Peak memory", "bytes", latency.peak_rss_bytes)
    if speed is not None:
        for label, unit, summary in (
            ("Time to first token, cold", "ns", speed.cold_first_token_ns),
            ("Time to first token", "ns", speed.time_to_first_token_ns),
            ("Prefill, tokens", "1/s", speed.prefill_tokens_per_second),
            ("Decode, tokens", "1/s", speed.decode_tokens_per_second),
            ("Latency of a token, mean", "ns", speed.token_mean_ns),
            ("Latency of a token, median", "ns", speed.token_latency_ns),
            (f"Latency of a token, {_PERCENTILES[0.9]}", "ns", speed.token_p90_ns),
            (f"Latency of a token, {_PERCENTILES[0.99]}", "ns", speed.token_p99_ns),
        ):
            if summary is None:
                continue
            yield _Quantity(name, label, unit, summary.median, summary)


def _samples(run: RunAnalysis) -> Iterator[tuple[str, int, str, int, int]]:
    """Yields every raw latency; experiments that have no split stand last."""
    split = [experiment.name for experiment in run.experiments if experiment.name in run.timed]
    for name in dict.fromkeys([*split, *run.timed]):
        for block in run.timed[name].blocks:
            yield from _block_samples(name, block)


def _block_samples(
    experiment: str, block: BlockMetrics
) -> Iterator[tuple[str, int, str, int, int]]:
    first = block.first_inference_ns
    phases: dict[str, list[int]] = {
        "first": [] if first is None else [first],
        "warmup": block.warmup_latency_ns,
        "steady": block.latency_ns,
    }
    for phase, latencies in phases.items():
        for index, latency in enumerate(latencies):
            yield experiment, block.block, phase, index, latency


def _thread_points(experiments: Sequence[ExperimentAnalysis]) -> Iterator[_ThreadPoint]:
    """Yields the thread map; nothing where fewer than two thread counts were timed."""
    thread_map = build_thread_map(experiments)
    if thread_map is not None:
        for cell in sorted(thread_map.cells, key=lambda cell: cell.threads):
            effect = thread_map.effects.get(cell.threads) if cell.sme == "sme2" else None
            yield _ThreadPoint(cell, effect, cell == thread_map.best)


def _launches(experiment: ExperimentAnalysis) -> Iterator[tuple[str, int, float, float]]:
    """Yields each timing launch's median, the fastest first, with the share of launches so far."""
    summary = experiment.latency.steady if experiment.latency else None
    blocks = experiment.metrics.blocks if experiment.metrics else ()
    medians = summary.block_medians if summary else ()
    ordered = sorted(zip(medians, (b.block for b in blocks), strict=False))
    for rank, (median, block) in enumerate(ordered, start=1):
        yield experiment.name, block, median, rank / len(ordered)


LAUNCHES: Final = Table(
    "launches",
    (
        Column("experiment", "string", of=lambda s: s[0], says="experiment of the run"),
        Column("block", "Int64", "count", basis="position", of=lambda s: s[1], says="number of the process launch"),
        Column("median_ns", "float64", "ns", title="median", is_timed=True, of=lambda s: s[2],
               says="of the launch's steady inferences, without event tracer"),
        Column("at_most", "float64", "share", basis="over the run", title="of launches", is_timed=True,
               of=lambda s: s[3], says="share of the launches that took at most this long (their "
               "empirical distribution)"),
    ),
    title="Launches by latency",
    from_each="experiment",
    rows_of=_launches,
    says="one row per experiment and timing launch, the fastest first",
    basis="per inference",
)  # fmt: skip
LATENCIES: Final = Table(
    "latencies",
    (
        Column("experiment", "string", of=lambda s: s.experiment, visibility="several",
               says="experiment of the run"),
        Column("quantity", "string", of=lambda s: s.quantity, says="such as `Load` or `Inference`"),
        Column("unit", "string", of=lambda s: s.unit, visibility="data", says="ns, bytes or 1/s"),
        *estimate("median", "@unit", lambda s: s.summary, lambda s: s.value,
                  says="median over process launches of each launch's median",
                  interval="its interval over launches, 95 % where there is no doubt"),
        Column("launches", "Int64", "count", basis="over the run", dropped_first=1,
               of=lambda s: len(s.summary.block_medians) if s.summary else None,
               says="process launches"),
        Column("doubt", "string", of=lambda s: s.summary.doubt or None if s.summary else None,
               says="why the interval is missing, or covers less than 95 %"),
    ),
    title="Latency of timing launches",
    from_each="experiment",
    rows_of=_quantities,
    says="one row per experiment and quantity",
    basis="by row",
)  # fmt: skip
SAMPLES: Final = Table(
    "samples",
    (
        Column("experiment", "string", of=lambda s: s[0], visibility="several",
               says="experiment of the run"),
        Column("block", "Int64", "count", basis="position", of=lambda s: s[1], says="process launch"),
        Column("phase", "string", of=lambda s: s[2], says="first, warmup or steady"),
        Column("index", "Int64", "count", basis="position", of=lambda s: s[3], says="place in its phase"),
        Column("latency_ns", "Int64", "ns", is_timed=True, of=lambda s: s[4],
               says="raw latency without tracer"),
    ),
    from_each="run",
    rows_of=_samples,
    says="one row per timed inference",
    basis="per inference",
)  # fmt: skip
TRACER_COSTS: Final = Table(
    "tracer_costs",
    (
        Column("experiment", "string", of=lambda c: c.experiment, says="experiment of the run"),
        Column("kind", "string", title="cost of", of=lambda c: c.kind,
               says="recording events, having the tracer compiled in, or the operator clock"),
        Column("without_ns", "float64", "ns", title="without", is_timed=True,
               of=lambda c: c.without_ns, says="median of an inference"),
        Column("with_ns", "float64", "ns", title="with", is_timed=True, of=lambda c: c.with_ns,
               says="median of an inference"),
        *estimate("ratio", "ratio", lambda c: c.effect,
                  lambda c: c.effect.speed_up if c.effect else c.ratio,
                  title="with ÷ without", says="with ÷ without",
                  interval="its 95 % interval, where a build without event tracer was measured in "
                  "turns"),
    ),
    title="Profiling overhead",
    from_each="cost",
    says="one row per experiment and cost",
    basis="per inference",
)  # fmt: skip
THREADS: Final = Table(
    "threads",
    (
        Column("threads", "Int64", "count", basis="per launch", of=lambda p: p.cell.threads, says="thread count"),
        Column("sme", "string", title="SME", of=lambda p: p.cell.sme, says="SME mode"),
        Column("median_ns", "float64", "ns", title="median inference", is_timed=True, has_bar=True,
               of=lambda p: p.cell.median_ns, says="median over process launches"),
        Column("is_best", "boolean", title="fastest", is_timed=True, of=lambda p: p.is_best,
               says="whether no other point is faster"),
        *speed_up(lambda p: p.effect, title="off ÷ sme2",
                  says="of SME2 over off at this thread count"),
        Column("verdict", "string", is_timed=True, styles=VERDICT_STYLES,
               of=lambda p: p.effect.verdict if p.effect else None, says="as of a comparison"),
    ),
    title="Threads and SME mode",
    from_each="experiments",
    rows_of=_thread_points,
    says="one row per thread count and SME mode, where several thread counts were timed",
    basis="per inference",
)  # fmt: skip


TOKEN_LATENCIES: Final = Table(
    "token_latencies",
    (
        Column("experiment", "string", of=lambda s: s[0], visibility="several",
               says="experiment of the run"),
        Column("first_position", "Int64", "count", basis="position", title="from position", of=lambda s: s[1].first,
               says="place in the cache that the token is written to, prompt included, from 0"),
        Column("last_position", "Int64", "count", basis="position", title="to position", of=lambda s: s[1].last,
               says="the last of these places"),
        *estimate("mean_ns", "ns", lambda s: s[1].latency_ns, lambda s: s[1].latency_ns.median,
                  title="latency of a token",
                  says="median over process launches of each launch's mean",
                  interval="its 95 % interval over launches"),
        Column("tokens_per_second", "float64", "1/s", title="tokens", is_timed=True, has_bar=True,
               of=lambda s: 1e9 / s[1].latency_ns.median, says="1 ÷ that latency: tokens a second "
               "against the length of the context"),
    ),
    title="Latency by position in the cache",
    from_each="experiment",
    rows_of=lambda e: [(e.name, span) for span in (e.generation.positions if e.generation else ())],
    says="one row per experiment and part of a language model's cache",
    basis="per token",
)  # fmt: skip


def thread_tables(experiments: Sequence[ExperimentAnalysis]) -> tuple[Table, Table]:
    """Returns the thread map laid out, a row per mode and a column per thread count, and in full."""
    threads, thread_map = THREADS.of_each([experiments]), build_thread_map(experiments)
    matrix = replace(
        threads, is_shaded=True, title="Median inference, the fastest of each mode and thread count"
    ).pivot("sme", "threads", "median_ns", join=min)
    counts = {name: int(name.rpartition("_")[2]) for name in matrix.names[1:]}
    titles = {name: count_of(count, "thread") for name, count in counts.items()}
    note = describe_crossover(thread_map) if thread_map else ""
    return matrix.titled(**titles), replace(threads, note=note)


def describe_crossover(thread_map: ThreadMap) -> str:
    """Says in one sentence which point is best and where SME2 stops winning."""
    best = thread_map.best
    text = f"best: {count_of(best.threads, 'thread')}, {sme_label(best.sme)}"
    if thread_map.crossover_threads is not None:
        text += f"; from {thread_map.crossover_threads} threads SME off is faster than SME2"
    return text


def generation_sections(experiments: Sequence[ExperimentAnalysis]) -> Iterator[Section]:
    """Yields what each experiment's language model read and said; its speed is a latency."""
    for number, experiment in enumerate(experiments, start=1):
        generated = experiment.metrics.generated if experiment.metrics else None
        if generated is None:
            continue
        speed = experiment.generation
        lines = [f"{_spread_text(speed)}."] if speed else []
        lines.append(f"Generated: {_generated_text(generated)}")
        if generated.differing_blocks:
            blocks = ", ".join(str(block + 1) for block in generated.differing_blocks)
            lines.append(
                f"Note: blocks {blocks} generated other tokens than the first: the program is not "
                "repeatable"
            )
        yield Section(
            f"generation-{number}",
            f"Generation: {experiment.name}",
            lead=f"{_prompt_text(generated)}.",
            tables=(TOKEN_LATENCIES.of_each([experiment]),),
            lines=tuple(lines),
        )


def _spread_text(speed: GenerationSpeed) -> str:
    """Says of how many tokens the figures are, and which are not told for want of tokens."""
    launch_tokens = speed.tokens_of_a_launch
    missing = [
        f"a {_PERCENTILES[quantile]} needs {needed}"
        for quantile, needed in LEAST_TOKENS.items()
        if launch_tokens < needed
    ]
    missing_text = f"; {', '.join(missing)}" if missing else ""
    return (
        f"{count_of(speed.tokens, 'token')} after the first, {launch_tokens} in a launch{missing_text}; "
        "tokens a second are 1 ÷ their mean latency"
    )


def _prompt_text(generated: GeneratedTokens) -> str:
    """Says what was read and generated, and by which methods."""
    prompt, at_once = len(generated.prompt_tokens), generated.prefilled_tokens
    steps = prompt - at_once
    steps_text = [f"{at_once} at once by {generated.prefill_method}"] if at_once else []
    steps_text += [f"{steps} one by one by {generated.decode_method}"] if steps else []
    new = count_of(len(generated.tokens), "new token")
    return f"{count_of(prompt, 'prompt token')} ({', '.join(steps_text)}), {new}"


def _generated_text(generated: GeneratedTokens) -> str:
    """Returns what the model said, on one line: text with a tokenizer, else its first ids."""
    if generated.text is not None:
        return clean(f"{generated.prompt or ''}{generated.text}", _LONGEST_TEXT)
    token_ids = " ".join(map(str, generated.tokens[:_SHOWN_TOKENS]))
    return token_ids + (" …" if len(generated.tokens) > _SHOWN_TOKENS else "")
