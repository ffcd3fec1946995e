"""The kinds of document: which files they are, how each is damaged, and what reads it."""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.hostile import api_calls, commands
from tests.hostile.containers import bomb, mutate_parquet, mutate_store, mutate_tar, mutate_zip
from tests.hostile.damage import damage_bytes, damage_place, file_sizes
from tests.hostile.etdumps import mutate_etdump
from tests.hostile.stand_ins import SpoiledTarget, read_in_pieces
from tests.hostile.values import OUTSIDE, TEXTS, double_a_key, mutate_json
from tests.hostile.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from etprof.targets.request import RunnerRequest
    from tests.hostile.commands import Command

    Mutation = Callable[[Path, Random], str]

_PLACE: Final = 0.12
_BYTES: Final = 0.15


@dataclass(frozen=True)
class Kind:
    """Documents of one kind, in a tree of sound ones."""

    name: str
    tree: str
    files: str
    """Pattern of the documents in the tree; one of them is damaged in each case."""
    commands: Sequence[Command]
    mutate: Mutation
    names_files: bool = False
    """Whether the user names the files that are read, wherever they are."""
    needs_torch: bool = False
    """Whether what reads them imports torch; all else must do without."""


def damage_file(path: Path, random: Random, change: Mutation) -> str:
    """Damages a document: rarely its place, sometimes its bytes, else what `change` does to it."""
    chance = random.random()
    if chance < _PLACE:
        return damage_place(path, random)
    if chance < _PLACE + _BYTES:
        return _change_bytes(path, random)
    return change(path, random)


def _change_bytes(path: Path, random: Random) -> str:
    data, told = damage_bytes(path.read_bytes(), random)
    path.write_bytes(data)
    return told


def _change_json(path: Path, random: Random) -> str:
    text = path.read_text(encoding="utf-8")
    if random.random() < 0.04:
        changed, told = double_a_key(text, random), "a key twice"
    else:
        changed, told = mutate_json(text, random)
    path.write_bytes(changed.encode("utf-8", "surrogatepass"))
    return told


def _change_lines(path: Path, random: Random) -> str:
    """Of a file made of words: one becomes something else."""
    words = path.read_text(encoding="utf-8").split()
    odd = random.choice((*TEXTS.values(), "-1", "9" * 5000, "²", "1e3"))
    words[random.randrange(len(words))] = odd
    path.write_bytes(random.choice((" ", "\n", ",")).join(words).encode("utf-8", "replace"))
    return f"a word is {odd[:30]!r}"


def _change_log(path: Path, random: Random) -> str:
    """Of a log: a number or a word of a line becomes something else, often a very long one."""
    text = path.read_text(encoding="utf-8")
    words = list(re.finditer(r"[\w.]+", text))
    chosen = random.choice(words)
    odd = random.choice((*TEXTS.values(), "-1", "9" * 5000, "0", "1e3", chosen[0] * 20_000))
    changed = text[: chosen.start()] + odd + text[chosen.end() :]
    path.write_bytes(changed.encode("utf-8", "replace"))
    return f"{chosen[0][:30]!r} is {odd[:30]!r}"


def _change_etdump(path: Path, random: Random) -> str:
    data, told = mutate_etdump(random)
    path.write_bytes(data)
    return told


def _change_tar(path: Path, random: Random) -> str:
    if random.random() < 0.02:
        path.write_bytes(bomb())
        return "512 MiB of zeros"
    data, told = mutate_tar(path.read_bytes(), random)
    path.write_bytes(data)
    return told


def _change_zip(path: Path, random: Random) -> str:
    data, told = mutate_zip(path.read_bytes(), random)
    path.write_bytes(data)
    return told


def _change_parquet(path: Path, random: Random) -> str:
    data, told = mutate_parquet(path.read_bytes(), random)
    path.write_bytes(data)
    return told


def _change_place(path: Path, random: Random) -> str:
    return damage_place(path, random)


def _spoil_result(path: Path, random: Random) -> str:
    """Has the runner leave a damaged result; the document itself is made by the stand-in."""
    state = random.getstate()
    _spoil(lambda request: damage_file(request.result, _again(random, state), _change_json))
    return f"the runner's result ({path.name})"


def _spoil_etdump(path: Path, random: Random) -> str:
    state = random.getstate()

    def spoil(request: RunnerRequest) -> None:
        if request.etdump is not None:
            damage_file(request.etdump, _again(random, state), _change_etdump)

    _spoil(spoil)
    return f"the runner's ETDump ({path.name})"


def _again(random: Random, state: tuple[object, ...]) -> Random:
    """Every launch leaves the same damage: a case is its number, not how often it launches."""
    random.setstate(state)
    return random


def _spoil(spoil: Callable[[RunnerRequest], object]) -> None:
    def unbounded(request: RunnerRequest) -> None:
        with file_sizes(resource.RLIM_INFINITY):
            spoil(request)

    SpoiledTarget.spoil = staticmethod(unbounded)


def _keep(_path: Path, _random: Random) -> str:
    return "the words of the command line"


def _file(change: Mutation) -> Mutation:
    return lambda path, random: damage_file(path, random, change)


_JSON: Final = _file(_change_json)
_RUN: Final = (*commands.RUN, *api_calls.RUN)
KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("manifest", "run", "run/manifest.json", _RUN, _JSON),
        Kind("metrics", "run", "run/metrics.json", _RUN, _JSON),
        Kind("result", "run", "run/*/*_result.json", _RUN, _JSON),
        Kind("kernel trace", "run", "run/*/*_kernels.json", _RUN, _JSON),
        Kind("delegation", "run", "run/delegation.json", _RUN, _JSON),
        Kind("run's export", "run", "run/export.json", _RUN, _JSON),
        Kind("output", "run", "run/*/*_outputs/output_0.bin", _RUN, _file(_change_bytes)),
        Kind("reference", "run", "reference_0.bin", _RUN, _file(_change_bytes)),
        Kind(
            "ETDump", "run", "run/*/*.etdump", (*_RUN, *api_calls.ETDUMP), _file(_change_etdump)
        ),
        Kind("thresholds", "run", "thresholds.json", commands.THRESHOLDS, _JSON),
        Kind("library", "run", "package.whl", commands.LIBRARY, _file(_change_zip)),
        Kind("archive", "run", "archive.tar.gz", api_calls.ARCHIVE, _change_tar),
        Kind("report page", "run", "run/report.html", api_calls.REPORT_PAGE, _change_place),
        Kind("finished manifest", "measure", "finished/manifest.json", commands.FINISHED, _JSON),
        Kind("finished metrics", "measure", "finished/metrics.json", commands.FINISHED, _JSON),
        Kind("finished result", "measure", "finished/*/*_result.json", commands.FINISHED, _JSON),
        Kind(
            "finished ETDump", "measure", "finished/*/*.etdump", commands.FINISHED,
            _file(_change_etdump),
        ),
        Kind("config", "measure", "config.json", commands.CONFIG, _JSON),
        Kind(
            "generation config", "measure", "generation.json", commands.GENERATION_CONFIG, _JSON
        ),
        Kind("matrix", "measure", "matrix.json", commands.MATRIX, _JSON),
        Kind(
            "export manifest", "measure", "m.pte.json", (*commands.PROGRAM, *api_calls.PROGRAM),
            _JSON,
        ),
        Kind("export's delegation", "measure", "m.pte.delegation.json", commands.PROGRAM, _JSON),
        Kind("program", "measure", "m.pte", commands.PROGRAM, _file(_change_bytes)),
        Kind("input", "measure", "x.npy", commands.INPUT, _file(_change_bytes)),
        Kind("runner's result", "measure", "m.pte", commands.PROGRAM, _spoil_result),
        Kind("runner's ETDump", "measure", "m.pte", commands.PROGRAM, _spoil_etdump),
        Kind("prompt", "measure", "prompt.txt", commands.PROMPTS, _file(_change_lines)),
        Kind("tokenizer", "measure", "tokenizer.json", commands.TOKENIZER, _JSON),
        Kind(
            "tokenizer table", "measure", "tiktoken.model", commands.TOKENIZER_TABLE,
            _file(_change_lines),
        ),
        Kind("lock", "measure", "locks/*.lock", commands.LOCK, _file(_change_bytes)),
        Kind("foreign ETDump", "foreign", "model.etdump", commands.FOREIGN, _file(_change_etdump)),
        Kind("runner's log", "foreign", "*.log", commands.FOREIGN, _file(_change_log)),
        Kind("minibench", "foreign", "bench.json", commands.FOREIGN, _JSON),
        Kind("store", "history", "history.sqlite", commands.STORE, _file(mutate_store)),
        Kind("history JSON", "history", "export.json", commands.IMPORT_JSON, _JSON),
        Kind(
            "history Parquet", "history", "export.parquet", commands.IMPORT_PARQUET,
            _file(_change_parquet),
        ),
        Kind("history HUD", "history", "export.hud", commands.IMPORT_HUD, _JSON),
        Kind(
            "ETRecord", "record", "x.etrecord", (*commands.ETRECORD, *api_calls.ETRECORD),
            _file(_change_zip), needs_torch=True,
        ),
        Kind("words", "measure", "config.json", WORDS, _keep, names_files=True),
    )
}  # fmt: skip


def damage(kind: Kind, folder: Path, random: Random) -> str:
    """Damages one document of a copied tree; returns which, and how."""
    SpoiledTarget.spoil = None
    found = sorted(folder.glob(kind.files)) or [folder / kind.files]
    path = random.choice(found)
    told = kind.mutate(path, random)
    events = random.choice((None, 1, 5, 64)) if path.suffix == ".etdump" else None
    read_in_pieces(events)
    return f"{path.relative_to(folder)}: {told}{f', in pieces of {events}' if events else ''}"


def secret(folder: Path) -> Path:
    """Returns the file outside a case's folder that names in documents lead to."""
    return (folder / OUTSIDE).resolve()
