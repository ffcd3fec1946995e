"""Optimizes many models in several precisions, and prints each beside its goal.

    python benchmarks/optimize_zoo.py [--outdir DIR] [--models LIST] [--precisions LIST]
        [--target emulator|local] [--budget TIME] [--into FILE]

The models are the zoo's and transformers' architectures in small sizes with random weights, as
precision_zoo.py and library_nets.py have them; those whose package is not here are left out and told.
Each search is `etprof optimize`; `--outdir` keeps what it found, and a second call goes on where the first stopped: a
search that was ended is read, not made again, unless it lacks what `--target` would prove. With
`--target emulator` shares are counted and the outputs of every SME mode are held to eager; with
`--target local` programs are measured in turns. The table is Markdown: before → after of each figure,
the rewrites that stayed, what the row rests on. `--into` puts each row, as soon as it is there, into
the table between the marks of a page, in the place of an earlier one of its model and precision; the
others stay, so that a table may be made in several calls. What stands under it is counted from its rows:
those that were counted or timed, those that are predicted alone, those without a program.
The exit code is 1 when a row misses its goal: no program of wrong outputs, not over 2 dB lost, and
where GOALS has the model, its coverage. A model whose plain outputs are wrong, and that no rewrite
mends, is told as such: that is no defect of the search.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import library_nets
import precision_zoo

from etprof.base.records import read_record
from etprof.base.units import count_of, format_count, format_ratio, format_share, format_size
from etprof.cli import main as run_etprof
from etprof.export.request import ExportOptions, ExportRequest
from etprof.optimize.optimizing import RECORD, identify_subject
from etprof.run.optimization import Optimization, smallest_gain

if TYPE_CHECKING:
    from etprof.run.optimization import Trial

PRECISIONS: Final = ("fp16", "int8", "8da4w")
OTHERS: Final = (
    "bert", "distilbert", "gpt2", "llama", "qwen2", "vit", "deit", "convnext", "resnet",
    "mobilenet_v1", "segformer", "albert",
)  # fmt: skip
"""Architectures beyond the zoo that are tried by default."""
AS_LIBRARIES: Final = {
    **dict.fromkeys(("mpnet", *library_nets.NETS), "fp16"),
    # Its own code makes positions in float32, and does not run in half precision.
    "conformer": "int8",
}
"""As their libraries make them, with the precision in which each is tried by default."""
COLUMNS: Final = (
    "model", "precision", "MACs on SME2", "delegate calls", "outside", "SNR against eager fp32",
    "planned memory", "size", "rewrites", "evidence", "goal",
)  # fmt: skip
MOST_LOST_DB: Final = 2.0
NO_PROGRAM, PREDICTED, COUNTED, TIMED = "no program", "predicted, not counted", "counted", "timed"
_INTERRUPTED: Final = (130, 143)
MARKS: Final = ("<!-- optimize_zoo.py -->", "<!-- end of optimize_zoo.py -->")


@dataclass(frozen=True)
class Goal:
    """What a result has to reach."""

    sme2_share: float = 0.0
    delegate_calls: int | None = None
    outside: int | None = None


class Row(NamedTuple):
    """One search, in the columns of the table."""

    cells: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Model and precision: a table has each pair once."""
        return self.cells[0], self.cells[1]

    @property
    def evidence(self) -> str:
        """What it rests on: one of the four kinds."""
        text = self.cells[COLUMNS.index("evidence")]
        return text if text in {NO_PROGRAM, PREDICTED} else text.partition(":")[0]

    @property
    def worst_db(self) -> float | None:
        """The distance of the result's outputs from eager in float32; None where there is none."""
        found = re.search(r"→ (-?[0-9.]+) dB$", self.cells[COLUMNS.index("SNR against eager fp32")])
        return float(found[1]) if found else None


GOALS: Final = {
    ("mobilenet_v2", "fp16"): Goal(0.93, 1, 0),
    ("mobilenet_v3_small", "fp16"): Goal(0.86, 1, 5),
    ("vit_tiny", "fp16"): Goal(0.99, 1, 0),
    ("transformer_encoder", "fp16"): Goal(0.99, 1, 3),
    # Calls and operators of both methods together.
    ("decoder", "fp16"): Goal(0.99, 10, 28),
    ("decoder", "8da4w"): Goal(0.95),
    **dict.fromkeys(AS_LIBRARIES.items(), Goal(0.9, 2, 5)),
}


def main() -> int:
    """Prints the table; returns 1 when a row misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","))
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=PRECISIONS)
    parser.add_argument("--target", choices=("emulator", "local"))
    parser.add_argument("--budget", help="of each search; 1s leaves all rewrites together")
    parser.add_argument("--into", type=Path)
    arguments = parser.parse_args()
    print("\n".join(render({})[:2]), flush=True)
    missed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.outdir or Path(temporary)
        for model in arguments.models or [
            *precision_zoo.find_loadable(),
            *OTHERS,
            *library_nets.NETS,
        ]:
            for precision in arguments.precisions:
                row, is_reached = _row(model, precision, folder, arguments)
                print(f"| {' | '.join(row.cells)} |", flush=True)
                missed += not is_reached
                if arguments.into is not None:
                    add_row(arguments.into, row)
    return 1 if missed else 0


def add_row(page: Path, row: Row) -> None:
    """Puts a row into the table of a page, in the place of an earlier one of its search."""
    rows = read_rows(page.read_text())
    rows[row.key] = row
    precision_zoo.put(page, MARKS, render(rows))


def read_rows(page: str) -> dict[tuple[str, str], Row]:
    """Returns the rows between the marks of a page; ends the script for a table of other columns."""
    lines = page.partition(MARKS[0])[2].partition(MARKS[1])[0].splitlines()
    tables = [line for line in lines if line.startswith("|")]
    if tables and tables[:2] != render({})[:2]:
        sys.exit(f"the table between {MARKS[0]} and {MARKS[1]} has other columns; take it out")
    rows = [Row(tuple(map(str.strip, re.split(r"(?<!\\)\|", line)[1:-1]))) for line in tables[2:]]
    return {row.key: row for row in rows}


def render(rows: dict[tuple[str, str], Row]) -> list[str]:
    """Returns the lines of the table, and under them what its rows rest on."""
    table = precision_zoo.table_head(COLUMNS)
    table += [f"| {' | '.join(row.cells)} |" for row in rows.values()]
    kinds = Counter(row.evidence for row in rows.values())
    told = [f"{kinds[kind]} {kind}" for kind in (COUNTED, TIMED, PREDICTED) if kinds[kind]]
    without = ["`" + " ".join(row.key) + "`" for row in rows.values() if row.evidence == NO_PROGRAM]
    told += [f"{len(without)} without a program ({', '.join(without)})"] if without else []
    return [*table, "", f"{count_of(len(rows), 'row')}: {'; '.join(told) or 'none'}."]


def _row(
    model: str, precision: str, folder: Path, arguments: argparse.Namespace
) -> tuple[Row, bool]:
    """Searches one model in one precision; returns its row, and whether it is as it should be."""
    place = folder / f"{model}_{precision}"
    subject = library_nets.model_of(model) or precision_zoo.model_of(model)
    found = _find_ended(subject, precision, place, arguments.target)
    if found is None:
        words = ["--dtype", precision, "--outdir", str(place)]
        for name in ("target", "budget"):
            value = getattr(arguments, name)
            words += [] if value is None else [f"--{name}", value]
        told = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
            code = run_etprof(["optimize", subject, *words])
        if code in _INTERRUPTED:
            sys.exit(code)
        if code != 0:
            last = told.getvalue().strip().splitlines()[-1].removeprefix("etprof: ")
            # What follows a semicolon is the way out, of which a table has no use.
            why = last.partition(";")[0].replace("|", "\\|")
            # 6: the export refuses the model, or its outputs are wrong whatever is rewritten.
            missing = ("–",) * (len(COLUMNS) - 4)
            return Row((model, precision, *missing, NO_PROGRAM, why)), code == 6
        found = read_record(Optimization, place / RECORD, way_out="delete it")
    problems = list(_problems(found, GOALS.get((model, precision), Goal())))
    goal = "; ".join(problems) or "reached"
    return Row((model, precision, *_figures(found), goal)), not problems


def _find_ended(
    subject: str, precision: str, place: Path, target: str | None
) -> Optimization | None:
    """Returns the record of an earlier search of the same program that needs no other step."""
    if not (place / RECORD).exists():
        return None
    found = read_record(Optimization, place / RECORD, way_out="delete it")
    request = ExportRequest(subject, precision, options=ExportOptions(rewrites=("all",)))
    is_same = found.made_of == identify_subject(request)
    is_proven = target is None or found.target is not None
    is_sound = found.best is not None and found.best.passed
    return found if is_same and is_proven and is_sound and found.is_complete else None


def _figures(found: Optimization) -> Iterator[str]:
    before, after = _sides(found)
    sides, macs = (before, after), before.macs
    yield _arrow(*(format_share(each.sme2_share(macs)) for each in sides))
    yield _arrow(*(format_count(each.delegate_calls) for each in sides))
    yield _arrow(*(format_count(each.outside) for each in sides))
    yield f"{_arrow(*(_decibels(_worst_db(each)) for each in sides))} dB"
    yield _arrow(*(format_size(each.planned_bytes) for each in sides))
    yield _arrow(*(format_size(each.size_bytes) for each in sides))
    names = ", ".join(after.rewrites) or "none"
    yield names if found.is_complete else f"{names} (the budget ended)"
    gain = smallest_gain(found.gains)
    if gain is not None:
        interval = gain.interval
        ends = f" [{format_ratio(interval.low)}, {format_ratio(interval.high)}]" if interval else ""
        yield f"{TIMED}: {gain.verdict} {format_ratio(gain.speed_up)}{ends}"
    elif after.counted is not None:
        calls = [each.counted.sme2_calls if each.counted else None for each in sides]
        yield f"{COUNTED}: {_arrow(*map(format_count, calls))} SME2 calls"
    else:
        yield PREDICTED


def _sides(found: Optimization) -> tuple[Trial, Trial]:
    assert found.baseline is not None
    assert found.best is not None
    return found.baseline, found.best


def _worst_db(trial: Trial) -> float | None:
    """Returns the distance from eager in the worst SME mode, where all ran."""
    known = [trial.snr_db, trial.counted.snr_db if trial.counted else None]
    return min((each for each in known if each is not None), default=None)


def _decibels(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _arrow(before: str, after: str) -> str:
    return f"{before} → {after}"


def _problems(found: Optimization, goal: Goal) -> Iterator[str]:
    before, after = _sides(found)
    if not after.passed or (after.counted is not None and after.counted.problem is not None):
        yield "its outputs are wrong"
    lost = (before.snr_db or 0) - (after.snr_db or 0)
    if before.passed and after.snr_db is not None and lost > MOST_LOST_DB:
        yield f"{lost:.1f} dB lost"
    share = after.sme2_share(before.macs)
    if goal.sme2_share and (share is None or share < goal.sme2_share):
        yield f"less than {format_share(goal.sme2_share)} on SME2"
    for name in ("delegate_calls", "outside"):
        most = getattr(goal, name)
        if most is not None and getattr(after, name) > most:
            yield f"over {most} {name.replace('_', ' ')}"


if __name__ == "__main__":
    sys.exit(main())
