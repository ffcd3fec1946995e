"""What commands tell of this machine, of devices, of models and of a run's files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from etprof.backends.kernel_names import LEVELS, SME_LEVELS, parse_kernel_name
from etprof.tables.table import Column, Table

if TYPE_CHECKING:
    from etprof.backends.library import ProductKernels

MODELS: Final = Table(
    "models",
    (
        Column("model", "string", says="Its registered name"),
        Column("inputs", "string", says="Of each method, as dtype[shape]"),
        Column("parameters", "Int64", unit="count", says="Weights and biases"),
        Column("macs", "Int64", unit="count", title="MACs", says="Of one call of the method"),
    ),
    says="A method of a model that can be exported.",
)
FAMILIES: Final = Table(
    "model_families",
    (
        Column("prefix", "string", title="family", of=lambda f: f"{f.prefix}:", says="Before a name"),
        Column("takes", "string", title="name", dropped_first=1, of=lambda f: f.takes, says="What the name is"),
        Column("example", "string", dropped_first=2, of=lambda f: f.example, says="A model of it"),
        Column("way_out", "string", title="missing", visibility="everywhere",
               of=lambda f: None if f.is_installed else f"pip install {f.package}",
               says="How to get its package, where that is missing"),
    ),
    says="A package whose models have names here.",
)  # fmt: skip
PARTS: Final = Table(
    "parts",
    (
        Column("part", "string", says="What was looked for"),
        Column(
            "status",
            "string",
            title="",
            says="ok, missing, or a note: for some uses only",
            styles={"ok": "green", "missing": "red", "note": "yellow"},
        ),
        Column("detail", "string", title="found", says="What is there"),
        Column("way_out", "string", title="how to fix", says="How to get it"),
    ),
    says="A part of this machine that etprof uses.",
)
LIBRARY_NAMES: Final = Table(
    "library_names",
    (
        Column("kind", "string", of=lambda n: n.kind,
               says="label of a delegate's operator, kernel outside delegates, or microkernel"),
        Column("name", "string", of=lambda n: n.name, is_whole=True, says="As it stands in the library"),
        Column("level", "string", dropped_first=1, of=lambda n: n.level,
               says="Instruction set of a microkernel; missing where its name says none"),
        Column("problem", "string", of=lambda n: n.problem, visibility="everywhere",
               says="What etprof cannot read of it"),
    ),
    says="A name in a library that etprof's tables are held against.",
)  # fmt: skip


def _count(level: str, products: ProductKernels) -> int | None:
    return products.count(level)


LIBRARY_PRODUCTS: Final = Table(
    "library_products",
    (
        Column("operation", "string", of=lambda p: p.operation, says="In KleidiAI's words"),
        Column("left", "string", of=lambda p: p.left_type, says="Data type of the left side"),
        Column("right", "string", of=lambda p: p.right_type, says="Data type of the right side: weights"),
        Column("output", "string", of=lambda p: p.output_type, says="Data type of the output"),
        Column("rows", "string", of=lambda p: p.rows,
               says="Of the left side: `one`, as in a language model's decode, or `any`"),
        *(Column(level, "Int64", "count", of=partial(_count, level),
                 says=f"Microkernels for {level}; missing where there is none")
          for level in LEVELS),
    ),
    says="A kind of product that a library has microkernels of KleidiAI's for.",
)  # fmt: skip


class FunctionCalls(NamedTuple):
    """How often a program called a function."""

    name: str
    calls: int

    @property
    def level(self) -> str | None:
        """Instruction set of a microkernel; None where its name says none."""
        return parse_kernel_name(self.name).level

    @property
    def is_sme(self) -> bool:
        """Whether it is a microkernel for SME or SME2."""
        return self.level in SME_LEVELS


FUNCTION_CALLS: Final = Table(
    "function_calls",
    (
        Column("function", "string", of=lambda f: f.name, is_whole=True, says="Its symbol"),
        Column("level", "string", of=lambda f: f.level,
               says="Instruction set of a microkernel; missing where its name says none"),
        Column("calls", "Int64", "count", basis="over the run", of=lambda f: f.calls,
               says="By all threads, from the program's start to its end"),
    ),
    says="A function that a debugger has counted the calls of.",
)  # fmt: skip
EMULATOR_PARTS: Final = Table(
    "emulator_parts",
    (
        Column("name", "string", title="part", of=lambda p: p.name, says="What it needs"),
        Column("path", "string", title="where", of=lambda p: str(p.path) if p.path else None,
               is_whole=True, says="Missing where it is not there"),
        Column("problem", "string", of=lambda p: p.problem, says="What is wrong with it"),
        Column("way_out", "string", title="how to fix", of=lambda p: None if p.path else p.way_out,
               says="How to get it, where it is missing"),
    ),
    says="A part of the emulator.",
)  # fmt: skip
PEAKS: Final = Table(
    "peaks",
    (
        Column("program", "string", of=lambda p: p.program, says="Product or stream"),
        Column("precision", "string", of=lambda p: p.precision, says="Of a product"),
        Column("sme", "string", title="SME", of=lambda p: p.sme, says="Mode in force"),
        Column("threads", "Int64", "count", of=lambda p: p.threads, says="In force"),
        Column("low", "float64", "@unit", of=lambda p: p.low, says="Of the launches"),
        Column("high", "float64", "@unit", title="peak", of=lambda p: p.high,
               says="Of the launches: the roof"),
        Column("unit", "string", of=lambda p: "GB/s" if p.precision is None else "GFLOP/s",
               visibility="data", says="A multiply-accumulate is two operations"),
    ),
    says="What a device reached.",
)  # fmt: skip
DEVICES: Final = Table(
    "devices",
    (
        Column("serial", "string", of=lambda d: d.serial, says="What adb calls it"),
        Column("state", "string", of=lambda d: d.state, says="`device` when it is ready"),
        Column("model", "string", of=lambda d: d.model, says="Its maker's name for it"),
    ),
    says="An attached device, whatever its state.",
)
FACTS: Final = Table(
    "facts",
    (
        Column("fact", "string", of=lambda s: s[0], says="Name, nested ones joined by dots"),
        Column("value", "string", of=lambda s: s[1], says="Missing where nobody tells"),
    ),
    says="One thing that is known.",
)
SETTINGS: Final = Table(
    "settings",
    (
        Column("setting", "string", of=lambda s: s[0], says="Name on the device"),
        Column("value", "string", of=lambda s: s[1], says="Missing where it is not set"),
    ),
    says="A setting as it is.",
)
DIFFERENCES: Final = Table(
    "differences",
    (
        Column("setting", "string", of=lambda d: d.setting, says="Name on the device"),
        Column("wanted", "string", of=lambda d: d.expected, says="By the profile"),
        Column("found", "string", of=lambda d: d.actual, says="Missing where it is not set"),
    ),
    says="A setting that is not as the profile wants it.",
)
CHECKS: Final = Table(
    "checks",
    (
        Column("level", "string", of=lambda f: f.level, says="ok, note, wrong, incomplete or damaged",
               styles={"ok": "green", "note": "yellow", "incomplete": "yellow",
                       "wrong": "bold red", "damaged": "bold red"}),
        Column("text", "string", title="found", of=lambda f: f.text, says="What was seen"),
    ),
    says="One thing of a run directory that was checked.",
)  # fmt: skip
