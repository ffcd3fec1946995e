"""Which microkernels ran in each SME mode, counted under a kernel trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etprof.analysis.split.evidence import GRADES, align_modes, pair_phases
from etprof.analysis.split.work import add_work, load_bytes, packing_bytes, tile_share, tile_uses
from etprof.backends.kernel_names import LEVELS, is_packing_function, size_arguments
from etprof.base.text import layer_or_label
from etprof.base.units import count_of, format_count
from etprof.run.kernel_trace import BEFORE
from etprof.tables.table import Column, Section, Table, named_column

if TYPE_CHECKING:
    from etprof.analysis.split.evidence import (
        InstructionEvidence,
        KernelUse,
        ModeEvidence,
        OperatorEvidence,
        OperatorModes,
    )
    from etprof.analysis.split.work import ProductWork
    from etprof.run.kernel_trace import InstructionCounts
    from etprof.tables.table import Visibility

_SHOWN_FUNCTIONS: Final = 3


class _ModeRow(NamedTuple):
    """One row: an operator in its fastest mode and with SME off."""

    best: OperatorEvidence | None
    off: OperatorEvidence | None
    name: str
    """What people look for: the layer, else the label."""
    label: str
    """No other row has it."""

    @property
    def kernels(self) -> tuple[KernelUse, ...]:
        """Those that compute, in the fastest mode."""
        return self.best.compute_kernels if self.best else ()


class _Instructions(NamedTuple):
    """One row: an operator of a delegate, or what comes before them all."""

    experiment: str
    counted: InstructionCounts
    number: int | None
    operator: str
    location: str | None
    functions: Mapping[str, int]


class _MicrokernelRow(NamedTuple):
    """One row: a microkernel of one operator in one mode, or of the loading of the program."""

    mode: str
    number: int | None
    operator: OperatorEvidence | None
    kernel: KernelUse
    svl_bits: int | None
    is_load: bool = False


def _count(level: str) -> Callable[[Any], int]:
    """Reads how often microkernels of a level computed something in a mode."""

    def read(subject: tuple[str, ModeEvidence]) -> int:
        return subject[1].count_level(level)

    return read


def _computing(operator: OperatorEvidence | None) -> str | None:
    """The microkernels that compute, by line; None for an operator that is not there."""
    if operator is None:
        return None
    names = [kernel.name.removeprefix("kai_run_") for kernel in operator.compute_kernels]
    return "\n".join(names) or "no KleidiAI microkernel"


def _types(operator: OperatorEvidence | None) -> str | None:
    return (", ".join(operator.parsed_name.data_types) or None) if operator else None


def _reason(row: _ModeRow) -> str | None:
    reason = row.best.why_not_sme2 if row.best else None
    return reason.code if reason else None


def _rows(counted: Mapping[str, ModeEvidence]) -> Iterator[_ModeRow]:
    """The operators that matter to SME, side by side in all modes."""
    fastest = next(iter(counted), "")
    rows = [row for row in align_modes(counted) if _is_interesting(row)]
    short_names = Counter((row.best().location, _without_types(row.best().name)) for row in rows)
    for row in rows:
        operator = row.best()
        label = _without_types(operator.name)
        if short_names[operator.location, label] > 1:
            # They differ in their types alone.
            label = operator.name
        name = layer_or_label(operator.location, label)
        yield _ModeRow(row.by_mode.get(fastest), row.by_mode.get("off"), name, label)


def _without_types(name: str) -> str:
    return re.sub(r" \([^()]*\)", "", name)


def _is_interesting(row: OperatorModes) -> bool:
    operator = row.best()
    return operator.could_use_sme2 or bool(operator.kernels)


def _uses(counted: Mapping[str, ModeEvidence]) -> Iterator[_MicrokernelRow]:
    for mode, evidence in counted.items():
        for number, operator in enumerate(evidence.operators, start=1):
            for kernel in operator.kernels:
                yield _MicrokernelRow(mode, number, operator, kernel, evidence.svl_bits)
        for kernel in evidence.load:
            yield _MicrokernelRow(mode, None, None, kernel, evidence.svl_bits, is_load=True)


def work_columns(
    of: Callable[[Any], ProductWork | None], *, visibility: Visibility = "data"
) -> tuple[Column, ...]:
    """What products on SME do in one inference, from the sizes that their calls were given."""

    def column(name: str, unit: str, says: str, title: str | None = None) -> Column:
        member = {"sme_macs": "macs"}.get(name, name.removesuffix("_macs"))

        def read(subject: object) -> int | None:
            work = of(subject)
            return None if work is None else int(getattr(work, member))

        return Column(name, "Int64", unit, of=read, title=title, visibility=visibility, says=says)

    return (
        column("sme_macs", "count", "multiply-accumulates that outputs of products on SME need, as "
               "counted", "MACs on SME"),
        column("tile_padding_macs", "count", "those done beside them, in tiles that stand out of "
               "the output"),
        column("k_padding_macs", "count", "those done beside them, since packing rounds k up"),
        column("steps", "count", "tiles, each times its number of steps along k: a step is an outer "
               "or dot product of 32 bits deep"),
        column("left_bytes", "bytes", "what packing writes of left sides", "left side"),
        column("right_bytes", "bytes", "what products read of packed right sides, once for each "
               "row of tiles", "right side"),
        column("output_bytes", "bytes", "what products write", "output"),
    )  # fmt: skip


def _sizes(use: _MicrokernelRow) -> str | None:
    """Such as `16 × m 8, n 32, k 36`."""
    names = size_arguments(use.kernel.name)
    return (
        "\n".join(
            f"{format_count(calls)} × " + ", ".join(map("{} {}".format, names, sizes))
            for sizes, calls in use.kernel.by_sizes
        )
        or None
    )


def _named(of: Callable[[Any], OperatorEvidence | None]) -> Column:
    """The layer of an operator, else its name; missing without an operator."""

    def read(subject: object) -> str | None:
        operator = of(subject)
        return None if operator is None else layer_or_label(operator.location, operator.name)

    return named_column(read)


KERNELS: Final = Table(
    "kernels",
    (
        # Without the types, which have columns of their own.
        named_column(lambda r: r.name),
        Column("label", "string", of=lambda r: r.label, repeats="name", dropped_first=5,
               says="name, without its data types where that still names one operator"),
        Column("types", "string", dropped_first=1, of=lambda r: _types(r.best),
               says="in the fastest mode"),
        Column("types_off", "string", title="off", dropped_first=4, of=lambda r: _types(r.off),
               says="with SME off"),
        Column("kernels", "string", title="microkernel", dropped_first=1,
               of=lambda r: "\n".join(k.name.removeprefix("kai_run_") for k in r.kernels)
               or "no KleidiAI microkernel", says="those that compute, by line"),
        Column("grade", "string", dropped_first=3, of=lambda r: r.best.grade if r.best else None,
               says="; ".join(f"{grade}: {meaning}" for grade, meaning in GRADES.items())),
        Column("calls", "string", dropped_first=2,
               of=lambda r: "\n".join(format_count(k.calls) for k in r.kernels) or "0",
               says="per inference, by line"),
        Column("why_not_sme2", "string", title="why not SME2", of=_reason,
               says="code of the reason, as in `why_not_sme2`"),
    ),
    from_each="counted",
    rows_of=_rows,
    title="Microkernels by operator",
    note="Grade A: its calls were counted; B: inferred from the operator's type. A type that begins "
    "with P, such as PF16, is packed for KleidiAI's microkernels.",
    says="one row per convolution or matrix product of a program whose kernels were counted",
)  # fmt: skip
PHASES: Final = Table(
    "generation_kernels",
    (
        Column("mode", "string", of=lambda p: p.mode, says="SME mode, with the vector length where "
               "there are several"),
        Column("operator", "string", of=lambda p: (p.decode or p.prefill).unnumbered,
               says="name with its data types"),
        Column("products", "Int64", "count", basis="per program", of=lambda p: p.count,
               says="how many of them run the same in both"),
        Column("prefill_kernels", "string", title="reading the prompt",
               of=lambda p: _computing(p.prefill), says="microkernels that compute while the prompt "
               "is read at once, by line"),
        Column("decode_kernels", "string", title="adding a token",
               of=lambda p: _computing(p.decode), says="the same while one token is added"),
    ),
    from_each="phases",
    rows_of=lambda phases: pair_phases(*phases),
    title="Reading the prompt and adding a token",
    says="one row per SME mode and kind of convolution or matrix product of a language model whose "
    "kernels were counted in both",
    basis="per inference",
)  # fmt: skip
MODES: Final = Table(
    "kernel_calls",
    (
        Column("mode", "string", of=lambda s: s[0], says="SME mode, with the vector length where "
               "there are several"),
        Column("svl_bits", "Int64", "bits", basis="per device", title="vector length", of=lambda s: s[1].svl_bits,
               says="streaming vector length, on which the number of calls depends"),
        *(Column(level, "Int64", "count", of=_count(level),
                 says=f"calls of {level} microkernels") for level in LEVELS),
        Column("tile_use", "float64", "share",
               of=lambda s: tile_share(tile_uses({s[0]: s[1]})),
               says="useful elements of outputs, of the elements of the tiles that SME computed"),
        *work_columns(lambda s: add_work(tile_uses({s[0]: s[1]})), visibility="page"),
        Column("load_bytes", "Int64", "bytes", basis="per load", title="packed at load", visibility="page",
               of=lambda s: load_bytes(s[1]), says="what packing writes while the program is "
               "loaded; missing where a microkernel's name and sizes do not say it"),
        Column("outside", "Int64", "count", title="outside operators",
               of=lambda s: s[1].calls_outside, says="calls that belong to no operator"),
        Column("complete", "boolean", title="all operators named", of=lambda s: s[1].is_complete,
               says="whether every piece of work could be told to be an operator's"),
        Column("counted_by", "string", visibility="data", of=lambda s: s[1].counted_by,
               says="runner: wrappers that are linked with it; debugger: breakpoints"),
        Column("steady", "boolean", title="same in every inference", of=lambda s: s[1].steady,
               says="whether every inference made the same calls"),
    ),
    from_each="counted",
    rows_of=lambda counted: counted.items(),
    title="Calls of KleidiAI's compute microkernels per inference",
    says="one row per SME mode in which kernels were counted",
    basis="per inference",
)  # fmt: skip
USES: Final = Table(
    "kernel_uses",
    (
        Column("mode", "string", of=lambda u: u.mode, says="SME mode"),
        Column("number", "Int64", "count", basis="position", of=lambda u: u.number, says="place of the operator in "
               "the order of execution; missing for calls while the program is loaded"),
        _named(lambda u: u.operator),
        Column("operator", "string", of=lambda u: u.operator.name if u.operator else None,
               title="label", repeats="name", says="name with its data types"),
        Column("microkernel", "string", of=lambda u: u.kernel.name, says="KleidiAI's name"),
        Column("level", "string", of=lambda u: u.kernel.level,
               says="sme2, sme, i8mm, dotprod or neon"),
        Column("is_packing", "boolean", of=lambda u: u.kernel.is_packing,
               says="whether it only rearranges data for others"),
        Column("calls", "Int64", "count", of=lambda u: None if u.is_load else u.kernel.calls,
               says="per inference"),
        Column("sizes", "string", of=_sizes, says="what the calls were given, such as m, n and k "
               "(padded), by line; missing in traces of older runners"),
        Column("macs", "Int64", "count", of=lambda u: u.kernel.macs,
               says="multiply-adds of these sizes, per inference"),
        Column("packed_bytes", "Int64", "bytes", basis="by row",
               of=lambda u: packing_bytes(u.kernel, u.svl_bits), says="what packing writes; "
               "missing where neither name nor sizes say it"),
        Column("load_calls", "Int64", "count", basis="per load", of=lambda u: u.kernel.calls if u.is_load else None,
               says="while the program is loaded"),
    ),
    from_each="counted",
    rows_of=_uses,
    title="Calls of every microkernel",
    says="one row per SME mode, operator and microkernel that it called",
    basis="per inference",
)  # fmt: skip
WORK: Final = Table(
    "work",
    (
        Column("number", "Int64", "count", basis="position", title="#", of=lambda u: u.number, says="place of the "
               "operator among those of all modes"),
        _named(lambda u: u.operator),
        Column("operator", "string", of=lambda u: u.operator.name, title="label", repeats="name",
               says="name with its data types"),
        Column("mode", "string", of=lambda u: u.mode, says="SME mode, with the vector length where "
               "there are several"),
        Column("svl_bits", "Int64", "bits", basis="per device", of=lambda u: u.svl_bits, says="streaming vector length"),
        Column("microkernel", "string", visibility="page", of=lambda u: u.kernel.name,
               says="KleidiAI's name"),
        Column("tile", "string", of=lambda u: f"{u.tile.rows} x {u.tile.columns}",
               says="rows and columns that it computes at once"),
        Column("calls", "Int64", "count", of=lambda u: u.kernel.calls, says="per inference"),
        Column("expected_calls", "Int64", "count", of=lambda u: u.expected_calls,
               says="calls that the rows of the longest vector length's calls take in these tiles"),
        Column("tiles", "Int64", "count", of=lambda u: u.tiles, says="tiles that its calls compute"),
        Column("tile_use", "float64", "share", of=lambda u: tile_share([u]),
               says="useful elements of the output, of the elements of those tiles"),
        Column("k", "Int64", "count", basis="per element", of=lambda u: u.k, says="products summed for an element, "
               "before they are packed; missing where calls differ"),
        Column("k_computed", "Int64", "count", basis="per element", title="k computed", of=lambda u: u.k_computed,
               says="the same with what packing adds"),
        *work_columns(lambda u: u.work, visibility="page"),
    ),
    from_each="counted",
    rows_of=tile_uses,
    title="Work of products on SME",
    says="one row per operator, SME mode and SME microkernel that multiplies",
    basis="per inference",
)  # fmt: skip


def _instruction_rows(counted: Mapping[str, InstructionEvidence]) -> Iterator[_Instructions]:
    for experiment, evidence in counted.items():
        counts = evidence.counts
        if counts.setup:
            yield _Instructions(experiment, counts, None, BEFORE, None, counts.setup)
        operators = zip(counts.operators, evidence.locations, strict=True)
        for number, (operator, location) in enumerate(operators, start=1):
            yield _Instructions(
                experiment, counts, number, operator.name, location, operator.functions
            )


INSTRUCTIONS: Final = Table(
    "instructions",
    (
        Column("experiment", "string", of=lambda r: r.experiment, says="whose launch counted"),
        Column("mode", "string", visibility="page", of=lambda r: r.counted.sme.in_force,
               says="SME mode in force"),
        Column("number", "Int64", "count", basis="position", title="#", of=lambda r: r.number,
               says="place among the operators of delegates; missing for what comes before them"),
        named_column(lambda r: layer_or_label(r.location, r.operator)),
        Column("operator", "string", title="label", repeats="name", of=lambda r: r.operator,
               says="name with its data types"),
        Column("instructions", "Int64", "count", of=lambda r: sum(r.functions.values()),
               says="that ran in the delegate's library for it, in one inference"),
        Column("packing", "Int64", "count",
               of=lambda r: sum(n for name, n in r.functions.items() if is_packing_function(name)),
               says="those of them in functions of KleidiAI that only rearrange data"),
        Column("functions", "string", title="most of them in",
               of=lambda r: "\n".join(
                   f"{name.removeprefix('kai_')} {format_count(count)}"
                   for name, count in largest(r.functions)),
               says="the functions with the most, by line; one without a name by its place"),
        Column("steady", "boolean", visibility="page", of=lambda r: r.counted.is_steady,
               says="whether every inference took the same, operator by operator"),
    ),
    from_each="instructions",
    rows_of=_instruction_rows,
    title="Instructions inside the delegate",
    says="one row per experiment and operator of a delegate, where instructions were counted",
    basis="per inference",
)  # fmt: skip


def largest(functions: Mapping[str, int]) -> list[tuple[str, int]]:
    """The functions in which most of the instructions are."""
    return sorted(functions.items(), key=lambda item: -item[1])[:_SHOWN_FUNCTIONS]


def work_sections(
    counted: Mapping[str, ModeEvidence], took: Mapping[str, InstructionEvidence]
) -> tuple[Section, ...]:
    """Returns what is exact: what products ask for, and the instructions that they took."""
    return work_section(counted), instruction_section(took)


def instruction_section(counted: Mapping[str, InstructionEvidence]) -> Section:
    """Returns what each operator took, one experiment after another."""
    lines = [
        f"{experiment}: {format_count(counts.total)} instructions of {counts.library} "
        f"({counts.library_sha256[:12]}), "
        + (
            f"the same in {count_of(counts.executions, 'inference')}"
            if counts.is_steady
            else "of the last inference, for they differed"
        )
        for experiment, (counts, _) in counted.items()
    ]
    says = (
        "Counted one by one with one thread, inside the delegate's library: not those of libc, of "
        "the thread pool, of other operators and of the runner. Instructions are no time."
    )
    table = INSTRUCTIONS.of_each([counted])
    return Section("instructions", INSTRUCTIONS.title, (table,), says=says, lines=tuple(lines))


def work_section(counted: Mapping[str, ModeEvidence]) -> Section:
    """Returns the products of the fastest SME mode, its vector lengths side by side.

    Terminals show it where there are several: then it is what was asked for.
    """
    fastest = next((evidence.mode_in_force for evidence in counted.values()), "")
    lengths = {
        mode: evidence for mode, evidence in counted.items() if evidence.mode_in_force == fastest
    }
    down = ("number", "name", "operator", "microkernel", "k", "k_computed", "sme_macs")
    of_length = ("calls", "tile_use", "steps", "left_bytes", "right_bytes")
    table = WORK.of_each([lengths]).pivot(down, "mode", *of_length)
    says = (
        "A product computes whole tiles, which grow with the vector length; what lies outside of "
        "its output is computed for nothing, and so is what packing adds to k. Exact, from the "
        "sizes that calls were given."
    )
    has_several_lengths = len(lengths) > 1
    return Section(
        "work",
        WORK.title,
        (table,),
        says=says,
        visibility="everywhere" if has_several_lengths else "page",
    )


def kernel_section(
    counted: Mapping[str, ModeEvidence],
    in_prefill: Mapping[str, ModeEvidence],
    prefilled_tokens: int | None,
) -> Section:
    """Returns what ran in each SME mode, as people read it."""
    fastest = next(iter(counted), "")
    tables: tuple[Table, ...] = (
        KERNELS.of_each([counted]).titled(types=fastest),
        MODES.of_each([counted]),
    )
    omitted_count = len(align_modes(counted)) - len(tables[0].rows)
    grades = ", ".join(f"{grade} {says}" for grade, says in GRADES.items())
    lines = [f"Grades: {grades}. Calls per inference; those of packing are in kernel_uses."]
    if any(evidence.counted_by == "debugger" for evidence in counted.values()):
        lines.append("A debugger counted these calls at breakpoints, in a launch of its own.")
    if omitted_count:
        lines.append(
            f"{count_of(omitted_count, 'other operator')}: no convolution or matrix product"
        )
    if in_prefill:
        reading = (
            f"{count_of(prefilled_tokens, 'token')} at once"
            if prefilled_tokens
            else "token by token"
        )
        lines.insert(
            0, f"Operators and calls are those of adding one token; the prompt is read {reading}."
        )
        tables += (PHASES.of_each([(in_prefill, counted)]),)
    title = "Which microkernels ran"
    return Section("kernels", title, tables, lines=tuple(lines) if counted else ())
