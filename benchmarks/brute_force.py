"""Holds `etprof optimize` against every combination of the rewrites that a model has use for.

    python benchmarks/brute_force.py [--models LIST] [--precision NAME] [--most N] [--into FILE]

The models are those of precision_zoo.py. A model with more than `--most` rewrites is left out and
told: N rewrites are 2^N exports. Each combination is exported and judged as the search judges:
outputs that hold, no more than the tolerance lost, then the figures by their order. The table is
Markdown, a row for each model; `--into` writes it into a file. The exit code is 1 where a
combination is better than the search's result.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import precision_zoo

from etprof.base.atomic import write_text
from etprof.base.errors import EtprofError
from etprof.base.units import count_of, format_share, format_value
from etprof.export.request import ExportOptions, ExportRequest
from etprof.optimize.optimizing import Optimizer
from etprof.optimize.search import Search
from etprof.run.optimization import compare

if TYPE_CHECKING:
    from etprof.run.optimization import Trial

MODELS: Final = (
    "toy_cnn", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "resnet", "resnet18", "regnet",
    "poolformer", "convnext", "convnextv2",
)  # fmt: skip
COLUMNS: Final = (
    "model", "rewrites with use", "combinations", "exports of the search", "result", "on SME2",
    "outside", "delegate calls", "better combinations",
)  # fmt: skip
TOLERANCE_DB: Final = 2.0
"""As `etprof optimize` has it by default."""


@dataclass(frozen=True)
class SearchedModel:
    """One model, what the search found, and every combination beside it."""

    name: str
    applicable: tuple[str, ...]
    searched: int
    """Exports of the search."""
    baseline: Trial
    result: Trial
    combinations: tuple[Trial, ...]

    @property
    def better(self) -> list[Trial]:
        """The combinations that the search should have found instead."""
        search = Search((), lambda _: self.baseline, TOLERANCE_DB, lambda: True)
        return [
            trial
            for trial in self.combinations
            if search.objection(trial, self.baseline) is None
            and compare(trial, self.result, self.baseline.macs) == "better"
        ]

    def cells(self) -> Iterator[str]:
        """Yields the row of the table."""
        yield self.name
        yield str(len(self.applicable))
        yield str(len(self.combinations))
        yield str(self.searched)
        yield ", ".join(self.result.rewrites) or "none"
        ends = (self.baseline, self.result)
        shares = [trial.sme2_share(self.baseline.macs) for trial in ends]
        yield " → ".join(map(format_share, shares))
        yield " → ".join(str(trial.outside) for trial in ends)
        yield " → ".join(str(trial.delegate_calls) for trial in ends)
        yield "; ".join(map(_describe, self.better)) or "none"


def _describe(trial: Trial) -> str:
    names = ", ".join(trial.rewrites) or "none"
    return f"{names} ({trial.outside} outside, {format_value('bytes', trial.size_bytes)})"


def try_all(name: str, precision: str, most: int, folder: Path) -> SearchedModel | str:
    """Searches, then exports every combination; returns a sentence where there are too many."""
    request = ExportRequest(
        precision_zoo.model_of(name), precision, options=ExportOptions(rewrites=("all",))
    )
    optimizer = Optimizer(request, folder, TOLERANCE_DB, None, lambda _: None)
    record = optimizer.run()
    if record.baseline is None or record.best is None:
        return "the search has no result"
    searched = len(record.trials)
    every = max(record.trials, key=lambda trial: len(trial.rewrites))
    if every.problem is not None:
        return f"all rewrites together do not lower: {every.problem}"
    applicable = every.without_idle().rewrites
    if len(applicable) > most:
        return f"{count_of(len(applicable), 'rewrite')} have use, at most {most} are combined"
    optimizer.exclusions.clear()
    combinations = tuple(
        optimizer.try_out(tuple(itertools.compress(applicable, chosen)))
        for chosen in itertools.product((False, True), repeat=len(applicable))
    )
    return SearchedModel(name, applicable, searched, record.baseline, record.best, combinations)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 where a combination is better than a result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--most", type=int, default=6)
    parser.add_argument("--into", type=Path)
    chosen = parser.parse_args(arguments)
    lines = precision_zoo.table_head(COLUMNS)
    print("\n".join(lines), flush=True)
    missed = tried = 0
    for name in chosen.models:
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                searched = try_all(name, chosen.precision, chosen.most, Path(folder))
            except EtprofError as error:
                searched = str(error)
        if isinstance(searched, str):
            print(f"{name}: left out: {searched}", file=sys.stderr, flush=True)
            continue
        tried += 1
        missed += bool(searched.better)
        lines.append(f"| {' | '.join(searched.cells())} |")
        print(lines[-1], flush=True)
        print(f"{name}: {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
    summary = f"{tried - missed} of {count_of(tried, 'result')} are the best of all combinations"
    print(f"\n{summary}")
    if chosen.into is not None:
        write_text(chosen.into, "\n".join([*lines, "", f"{summary}.", ""]))
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
