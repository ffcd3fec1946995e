"""Runs cases and fails on any breach: `python -m tests.hostile --help`."""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.hostile.kinds import KINDS
from tests.hostile.pool import LONGEST_S, run_cases
from tests.hostile.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.hostile.cases import Result
    from tests.hostile.pool import Case

_TORCH_SHARE: Final = 0.2
"""Of a run's time, for the kinds that need torch."""


def main() -> int:
    """Returns 0 when no case is a breach and every kind had one, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--cases", type=int, help="stop after this many cases")
    parser.add_argument("--case", metavar="KIND:NUMBER", action="append", default=[])
    parser.add_argument("--kind", action="append", default=[], choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="start at this number")
    parser.add_argument("--longest", type=float, default=LONGEST_S, metavar="S", help="a case")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", type=Path, help="write the defects there as Markdown")
    arguments = parser.parse_args()
    started = time.monotonic()
    tally = Tally()
    # Torch takes a second pool, and the seconds that it takes to be imported.
    for with_torch, share in ((False, 1 - _TORCH_SHARE), (True, _TORCH_SHARE)):
        for result in _run(arguments, with_torch=with_torch, share=share):
            tally.add(result)
            if arguments.case:
                print(result)
    return _tell(tally, time.monotonic() - started, arguments)


def _run(arguments: argparse.Namespace, *, with_torch: bool, share: float) -> Iterator[Result]:
    """Runs cases of the kinds with or without torch, for `share` of the time that is given.

    The time begins when the first worker is ready: how long that takes is the machine's affair.
    """
    kinds = [name for name, kind in KINDS.items() if kind.needs_torch == with_torch]
    cases = _cases(arguments, kinds)
    if arguments.cases is not None:
        cases = itertools.islice(cases, -(-arguments.cases * len(kinds) // len(KINDS)))
    first = next(cases, None)
    if first is None:
        return iter(())

    begun: list[float] = []

    def until() -> bool:
        now = time.monotonic()
        if not begun:
            begun.append(now)
        limit = arguments.seconds
        return limit is not None and now - begun[0] > limit * share

    return run_cases(
        itertools.chain([first], cases),
        workers=1 if with_torch else arguments.workers,
        until=until,
        seed=arguments.seed,
        longest_s=arguments.longest,
        with_torch=with_torch,
    )


def _cases(arguments: argparse.Namespace, kinds: Sequence[str]) -> Iterator[Case]:
    """Yields those cases of `kinds` that were asked for, or one of each in turn, without end."""
    if arguments.case:
        for text in arguments.case:
            kind, _, number = text.rpartition(":")
            if kind in kinds:
                yield kind, int(number)
        return
    chosen = [kind for kind in kinds if not arguments.kind or kind in arguments.kind]
    for number in itertools.count(arguments.first) if chosen else ():
        for kind in chosen:
            yield kind, number


def _tell(tally: Tally, seconds: float, arguments: argparse.Namespace) -> int:
    defects = tally.defects()
    if arguments.report is not None:
        arguments.report.write_text(f"{defects}\n", encoding="utf-8")
    print(tally.table())
    if tally.slowest is not None:
        slowest = tally.slowest
        print(f"Slowest case: {slowest.kind}:{slowest.number}, {slowest.seconds:.2f} s")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    rate = tally.cases / max(used.ru_utime + used.ru_stime, 1e-3)
    print(f"{tally.cases} cases in {seconds:.0f} s, {rate:.0f} a second of the processors' time")
    missing = [] if arguments.case or arguments.kind else tally.missing_kinds()
    if missing:
        print(f"No case of {', '.join(missing)}: give it more time", file=sys.stderr)
    if defects:
        print(f"{len(tally.breaches)} defects:\n{defects}", file=sys.stderr)
    return 1 if defects or missing else 0


if __name__ == "__main__":
    sys.exit(main())
