"""Command lines with a hostile word in them: for every subcommand, in each of its places."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.hostile.commands import Command
from tests.hostile.values import TEXTS

_SLOT: Final = "@"
_LINES: Final = (
    "@",
    "--@",
    "profile @",
    "profile @.pte",
    "profile m.pte --threads @",
    "profile m.pte --blocks @",
    "profile m.pte --seed @",
    "profile m.pte --timeout @",
    "profile m.pte --inputs @",
    "profile m.pte --data @",
    "profile m.pte --method @ --no-wait --blocks 1 --out out",
    "profile m.pte --target @",
    "profile m.pte --dtype @",
    "profile m.pte --generate @",
    "profile m.pte --generate 4 --prompt-tokens @ --no-wait --blocks 1 --out out",
    "profile m.pte --generate 4 --prompt @ --tokenizer tokenizer.json --no-wait --out out",
    "profile m.pte --generate 4 --prompt a --tokenizer @ --no-wait --out out",
    "profile m.pte --runner @",
    "run @",
    "run config.json --only @ --dry-run",
    "run --from-manifest @ --dry-run",
    "run config.json --analysis-only --output-root @",
    "bench @",
    "bench matrix.json --dry-run --out @",
    "export @",
    "export toy_cnn --dtype x@",
    "export toy_cnn --backend @ --dtype x",
    "analyze @",
    "analyze finished --top @",
    "compare @ @",
    "compare finished:@ finished",
    "compare finished finished --margin @",
    "compare finished finished --allow @",
    "report @",
    "report finished --format @",
    "report finished --reference @",
    "report finished --thresholds @",
    "validate @",
    "validate --results @",
    "calibrate @",
    "calibrate m.pte --pairs @",
    "history @",
    "history list --store @",
    "history show @ --store none.sqlite",
    "history check --baseline @ --store none.sqlite",
    "history check --baseline window:1 --threshold @ --store none.sqlite",
    "history export @ --store none.sqlite",
    "history import @ --store @",
    "dashboard --store @ --export site",
    "dashboard --port @",
    "dashboard --runs @",
    "config @",
    "config check @",
    "config init --template @",
    "config init --model @",
    "models @",
    "device @",
    "device prepare --profile @",
    "emulator @",
    "doctor @",
)
_NUMBERS: Final = ("-1", "0", "1e308", "9" * 5000, "0x10", "１", "nan", "inf", "-0.0", "1_0")
_BYTES: Final = ("\udcff\udcfe", "a\udc80b")
"""Words of a command line that are no UTF-8, as Python hands them over."""
_MISTAKES: Final = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8})


def _command(line: str) -> Command:
    def lines(random: Random) -> list[list[str]]:
        word = random.choice((*TEXTS.values(), *_NUMBERS, *_BYTES)).replace("\0", "")[:100_000]
        return [[part.replace(_SLOT, word) for part in line.split()]]

    name = line.partition(" ")[0]
    return Command("etprof" if _SLOT in name else name, lines, _MISTAKES - {1})


WORDS: Final = tuple(map(_command, _LINES))
