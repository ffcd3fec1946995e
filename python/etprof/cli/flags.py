"""Flags: a row each, and their types: numbers are refused with the bound that they are outside."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from etprof.base.limits import LARGEST_SEED, MOST_SECONDS, MOST_THREADS

Choice = TypeVar("Choice", int, str)
_MOST_DIGITS = 20
"""Of a number that is read at all: those of the largest seed."""
_MOST_HZ = 1e12
_MOST_DECIBELS = 200
"""More than float64 has."""


Row = tuple[str, Any, str, str] | tuple[str, Any, str, str, dict[str, Any]]
"""Name, type, metavar, help, and what else argparse takes. The type `bool` is a switch, a tuple of
words are choices; other names of the flag follow the first after a blank."""
MANY: Final[dict[str, Any]] = {"action": "append", "default": []}
"""A flag that may be given again."""
JSON: Final[Row] = ("--json", bool, "", "print the same data as JSON")
INPUT: Final[Row] = (
    "--input", str, "SHAPE|FILE",
    "an input of the model: 1x3x224x224, int64:1x17, x.npy, x.pt or NAME=…; may be given again",
    {"action": "append", "default": [], "dest": "example_inputs"},
)  # fmt: skip
FULL: Final[Row] = ("--full", bool, "", "print everything, not just what fits a screen")
NO_WAIT: Final[Row] = (
    "--no-wait", bool, "",
    "fail at once (exit code 5) if another etprof has the device, instead of waiting",
)  # fmt: skip
ALLOW_INACCURATE: Final[Row] = (
    "--allow-inaccurate", bool, "",
    "continue with a program whose outputs are wrong (else exit code 6); every report says so",
)  # fmt: skip
STORE: Final[Row] = (
    "--store", str, "FILE|URL", "the history (default: $ETPROF_HISTORY, then a file here)",
)  # fmt: skip


def hertz(text: str) -> float:
    """A frequency above 0, up to 1 THz."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= _MOST_HZ:
        raise argparse.ArgumentTypeError(f"must be from 1 to {_MOST_HZ:g} a second, not {text}")
    return value


CLOCK: Final[tuple[Row, ...]] = (
    ("--time-scale", ("ns", "us", "ms", "cycles"), "", "what a tick of the ETDump's clock is"),
    ("--clock-hz", hertz, "HZ", "ticks a second of a clock in cycles, such as 800e6"),
)
_FOLDER_NAMES = {"--out": "--outdir", "--outdir": "--out"}


def name_list(text: str) -> tuple[str, ...]:
    """Words with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def path_list(text: str) -> tuple[Path, ...]:
    """Paths with commas between them."""
    return tuple(Path(path) for path in text.split(",") if path)


def choice_list(*allowed: Choice) -> Callable[[str], tuple[Choice, ...]]:
    """Returns a parser of words with commas between them, each of them one of `allowed`."""

    def parse(text: str) -> tuple[Choice, ...]:
        choice_of = {str(choice): choice for choice in allowed}
        names = text.split(",")
        if not set(names) <= set(choice_of) or len(set(names)) < len(names):
            raise argparse.ArgumentTypeError(
                f"{text!r}: give {', '.join(choice_of)}, or several of them with commas between"
            )
        return tuple(choice_of[name] for name in names)

    return parse


def add_flags(parser: argparse._ActionsContainer, *rows: Row) -> None:
    """Declares flags and positional arguments, in order."""
    for names, kind, metavar, text, *more in rows:
        settings: dict[str, Any] = {"help": text, **(more[0] if more else {})}
        if kind is bool:
            settings["action"] = "store_true"
        elif isinstance(kind, tuple):
            settings["choices"] = kind
        else:
            settings["type"] = kind
        if metavar:
            settings["metavar"] = metavar
        parser.add_argument(*names.split(), **settings)
    _accept_either_name(parser, rows)


def _accept_either_name(parser: argparse._ActionsContainer, rows: tuple[Row, ...]) -> None:
    """Takes `--out` where a folder is `--outdir`, and the other way round; help shows one name."""
    folder_flags = {name for names, *_ in rows for name in names.split()} & set(_FOLDER_NAMES)
    if len(folder_flags) != 1:
        return
    (name,) = folder_flags
    row = next(row for row in rows if name in row[0].split())
    if row[1] is Path and row[2] == "DIR":
        parser.add_argument(
            _FOLDER_NAMES[name],
            dest=name.removeprefix("--"),
            type=Path,
            # The default of the name that is shown stands.
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )


def whole_number(minimum: int, maximum: int = LARGEST_SEED) -> Callable[[str], int]:
    """Returns a type for whole numbers from `minimum` to `maximum`."""

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdigit()
        # More digits are not read: that takes the square of their number.
        value = int(text[-_MOST_DIGITS:]) if is_number else None
        is_long = is_number and len(text.lstrip("0")) > _MOST_DIGITS
        if not text.removeprefix("-").isdigit():
            raise argparse.ArgumentTypeError(
                f"must be a whole number, at least {minimum}, not {text}"
            )
        if not is_long and (value is None or value < minimum):
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {text}")
        if is_long or value is None or value > maximum:
            raise argparse.ArgumentTypeError(
                f"must be at most {maximum}, not {text[:_MOST_DIGITS]}{'…' if is_long else ''}"
            )
        return value

    return parse


SERIAL: Final[Row] = ("--serial", str, "", "Android: the device, if several are attached")
RUNNER: Final[Row] = ("--runner", Path, "", "Android: the runner built for it")
THREADS: Final[Row] = (
    "--threads", whole_number(1, MOST_THREADS), "N", "threads (default: one per core; 1 on a phone or emulator)",
)  # fmt: skip


def seconds(text: str) -> float:
    """A time above 0 s, up to a month."""
    value = _number(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0 s, not {text}")
    if value > MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_SECONDS} s, not {text}")
    return value


def duration(text: str) -> float:
    """A time above 0 s, up to a month, in seconds: `90`, `90s`, `10min`, `10m` or `2h`."""
    for unit, factor in (("min", 60), ("m", 60), ("s", 1), ("h", 3600)):
        if text.endswith(unit):
            return _in_seconds(text, _number(text.removesuffix(unit)) * factor)
    return _in_seconds(text, _number(text))


def _in_seconds(text: str, value: float) -> float:
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 10min or 2h")
    return seconds(str(value))


def fraction(text: str) -> float:
    """A number above 0 and below 1."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(
            f"must be a fraction above 0 and below 1, such as 0.02, not {text}"
        )
    return value


def decibels(text: str) -> float:
    """A ratio from 0 to 200 dB."""
    value = _number(text)
    if not 0 <= value <= _MOST_DECIBELS:
        raise argparse.ArgumentTypeError(f"must be from 0 to {_MOST_DECIBELS} dB, not {text}")
    return value


def share(text: str) -> float:
    """A number from 0 to 1."""
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1, not {text}")
    return value


def _number(text: str) -> float:
    """Returns NaN, which is within no bounds, for what is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
