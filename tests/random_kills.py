"""Ends real commands by random signals at random moments, and checks what is left (S2, I11).

`nox -s kill -- --rounds 200 --seed 7`. After each signal: etprof ends within 2 s of SIGTERM and SIGHUP,
no process lives 2 s after its end, no lock is held, the exit code is the signal's; then the command is done again (`--resume` where
there is one), and nothing finished was lost, nothing is there twice. Exit code 1 on any breach.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from rich.console import Console
from rich.table import Table
from sqlalchemy import URL, create_engine, text

from etprof.base.errors import EtprofError
from etprof.base.files import hash_file
from etprof.run.directory import find_etdumps
from etprof.run.manifest import Manifest, load_manifest
from etprof.run.validation import validate_run, worst_level
from tests.process_tree import LONGEST_END_S, ProcessTree

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
LONGEST_COMMAND_S: Final = 300
LONGEST_WAY_OUT_S: Final = 30
"""A library may be busy in C for seconds before Python hears of Ctrl-C; not longer."""
LONGEST_PROMPT_END_S: Final = 2.0
"""From SIGTERM or SIGHUP to etprof's end, wherever it is."""
ORDER: Final = ("signal", "slow", "orphan", "lock", "lost", "doubled", "again", "validate")
"""Kinds of breach, as the table has them."""
QUICK: Final = {"blocks": 3, "min_seconds": 0.02, "etdump_runs": 2}


@dataclass(frozen=True)
class Breach:
    """Something that must never happen."""

    kind: str
    text: str


@dataclass
class Ended:
    """An etprof that has ended."""

    exit_code: int
    said: str
    was_ended: bool
    """It had not ended by itself before the signal."""
    way_out_s: float = 0.0
    """From the signal to its end."""
    rest_s: float | None = 0.0
    """From its end to that of all it had started; None: more than allowed."""


@dataclass(frozen=True)
class Place:
    """The folder of one round, with locks of its own."""

    folder: Path

    def run(
        self, words: Sequence[object], number: signal.Signals | None = None, after_s: float = 0
    ) -> Ended:
        """Runs etprof; with `number`, sends it that signal after a while."""
        tree = ProcessTree()
        locks = {"ETPROF_LOCKS": str(self.folder / "locks")}
        with (self.folder / "said.txt").open("w+", encoding="utf-8", errors="replace") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "etprof", *map(str, words)],
                cwd=self.folder,
                env={**os.environ, **tree.environment, **locks, "COLUMNS": "200"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
            ended = _end(process, number, after_s)
            ended.rest_s = tree.seconds_until_empty()
            said.seek(0)
            ended.said = said.read()
        for left in tree.living():
            os.kill(left, signal.SIGKILL)
        return ended

    def held_locks(self) -> list[str]:
        """Locks of devices and of run directories that somebody has."""
        held = []
        for path in [*self.folder.glob("locks/*"), *_run_directories(self.folder)]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(path.name)
            finally:
                os.close(descriptor)
        return held


def _end(process: subprocess.Popen[bytes], number: signal.Signals | None, after_s: float) -> Ended:
    """Waits for the end of etprof, or brings it about."""
    try:
        if number is None:
            return Ended(process.wait(LONGEST_COMMAND_S), "", was_ended=False)
        try:
            return Ended(process.wait(after_s), "", was_ended=False)
        except subprocess.TimeoutExpired:
            start = time.monotonic()
        process.send_signal(number)
        code = process.wait(LONGEST_WAY_OUT_S)
        return Ended(code, "", was_ended=True, way_out_s=time.monotonic() - start)
    finally:
        process.kill()
        process.wait()


def _run_directories(folder: Path) -> list[Path]:
    return [path.parent for path in folder.rglob("manifest.json")]


@dataclass
class Scenario(ABC):
    """One command: what it is given, and what must be so after a signal."""

    template: Path
    """What was made once for all rounds: programs, runs."""

    takes_s: ClassVar[float | None] = None
    """How long it is watched where it does not end by itself."""
    planned: int = 0
    """Launches of each of its runs, as one that nothing disturbed has them."""

    @abstractmethod
    def words(self, folder: Path) -> list[object]:
        """The command."""

    def prepare(self, folder: Path) -> None:
        """Puts into the round's folder what the command starts from; mostly nothing."""
        assert folder.is_dir()

    @abstractmethod
    def check(self, place: Place) -> Iterator[Breach]:
        """Looks at what is left, does the command again, and looks again."""


Launches = dict[tuple[str, str, int | None], str | None]
"""When each finished launch was started."""


def _finished_launches(manifest: Manifest) -> Launches:
    """When each launch that a manifest calls finished was started."""
    done = (each for each in manifest.launches if each.error is None)
    return {(each.experiment, each.purpose, each.block): each.started_at for each in done}


def _read(run: Path) -> tuple[Launches, int]:
    """Returns the finished launches, and how many rows the manifest has for them."""
    manifest = load_manifest(run)
    if manifest is None:
        return {}, 0
    return _finished_launches(manifest), sum(each.error is None for each in manifest.launches)


def _check_run(run: Path, planned: int, earlier: Launches) -> Iterator[Breach]:
    """A run that was done again: complete, what was finished kept, nothing twice."""
    launches, rows = _read(run)
    lost = [key for key, at in earlier.items() if launches.get(key) != at]
    if lost or len(launches) < planned:
        yield Breach("lost", f"{run.name}: {len(launches)} of {planned} launches; repeated: {lost}")
    if rows > planned:
        yield Breach("doubled", f"{run.name}: {rows} rows for {planned} launches")
    findings = validate_run(run)
    if worst_level(findings) not in {"ok", "note"}:
        yield Breach("validate", "; ".join(each.text for each in findings if each.level != "ok"))


def _again(place: Place, words: Sequence[object]) -> Iterator[Breach]:
    """Does the command, or its continuation, to the end."""
    ended = place.run(words)
    if ended.exit_code != 0:
        yield Breach("again", f"exit code {ended.exit_code}: {ended.said[-500:]}")


def _explained(run: Path) -> Iterator[Breach]:
    """What was cut off may be incomplete, never damaged."""
    if run.exists() and (findings := validate_run(run)) and worst_level(findings) == "damaged":
        yield Breach("validate", "; ".join(each.text for each in findings))


class Run(Scenario):
    """`etprof run`: continued with --resume."""

    def words(self, folder: Path) -> list[object]:
        return ["run", folder / "config.json"]

    def prepare(self, folder: Path) -> None:
        config = {
            "model": str(self.template / "toy_cnn_xnnpack_fp32.pte"),
            "output_root": "run",
            "experiments": [{"name": "one", "threads": 1}, {"name": "two", "threads": 2}],
            "measurement": QUICK,
        }
        (folder / "config.json").write_text(json.dumps(config))

    def check(self, place: Place) -> Iterator[Breach]:
        run = place.folder / "run"
        yield from _explained(run)
        earlier, _ = _read(run)
        yield from _again(place, [*self.words(place.folder), "--resume"])
        yield from _check_run(run, self.planned, earlier)


class Profile(Scenario):
    """`etprof profile`: measured anew, the cut-off run set aside."""

    def words(self, folder: Path) -> list[object]:
        program = self.template / "toy_cnn_xnnpack_fp32.pte"
        return [
            "profile",
            program,
            "--out",
            folder / "run",
            *["--blocks", "3", "--min-seconds", "0.02"],
        ]

    def check(self, place: Place) -> Iterator[Breach]:
        yield from _explained(place.folder / "run")
        yield from _again(place, self.words(place.folder))
        yield from _check_run(place.folder / "run", self.planned, {})


class Bench(Scenario):
    """`etprof bench`: two runs and a history, continued with --resume."""

    def words(self, folder: Path) -> list[object]:
        return ["bench", folder / "matrix.json", "--out", "out", "--store", "history.sqlite"]

    def prepare(self, folder: Path) -> None:
        matrix = {
            "name": "kills",
            "models": ["toy_cnn"],
            "precisions": ["fp32", "fp16"],
            "threads": [1],
            "measurement": QUICK,
        }
        (folder / "matrix.json").write_text(json.dumps(matrix))
        if (self.template / "bench").exists():
            shutil.copytree(self.template / "bench", folder / "out" / "programs")

    def check(self, place: Place) -> Iterator[Breach]:
        out = place.folder / "out"
        earlier = {run: _read(run)[0] for run in _run_directories(out) if find_etdumps(run)}
        for run in earlier:
            yield from _explained(run)
        yield from _again(place, [*self.words(place.folder), "--resume"])
        runs = [run for run in _run_directories(out) if "programs" not in run.parts]
        for run in runs:
            yield from _check_run(run, self.planned, earlier.get(run, {}))
        if len(runs) != 2:
            yield Breach("lost" if len(runs) < 2 else "doubled", f"{len(runs)} runs of 2")
        yield from _check_history(place.folder / "history.sqlite", 2)


class HistoryAdd(Scenario):
    """`etprof history add`: everything once, or nothing; done again, once."""

    RUNS: Final = 3

    def words(self, folder: Path) -> list[object]:
        runs = [self.template / f"run{number}" for number in range(self.RUNS)]
        return ["history", "add", *runs, "--store", folder / "history.sqlite"]

    def check(self, place: Place) -> Iterator[Breach]:
        yield from _again(place, self.words(place.folder))
        yield from _check_history(place.folder / "history.sqlite", self.RUNS)


def _check_history(path: Path, expected: int) -> Iterator[Breach]:
    """Every experiment is there once, and SQLite finds nothing wrong."""
    engine = create_engine(URL.create("sqlite", database=str(path)))
    with engine.connect() as connection:
        keys = Counter(connection.scalars(text("SELECT key FROM runs")))
        whole = connection.scalar(text("PRAGMA integrity_check"))
    engine.dispose()
    if len(keys) < expected:
        yield Breach("lost", f"the history has {len(keys)} of {expected} runs")
    if keys.total() > expected:
        yield Breach("doubled", f"the history has {keys.total()} runs for {expected}")
    if whole != "ok":
        yield Breach("validate", f"the history is damaged: {whole}")


class Export(Scenario):
    """`etprof export`, over an earlier export: all of one, or none."""

    def words(self, folder: Path) -> list[object]:
        return ["export", "toy_cnn", "--dtype", "fp32", "--quiet", "--outdir", folder / "program"]

    def prepare(self, folder: Path) -> None:
        (folder / "program").mkdir()
        for path in self.template.glob("toy_cnn_xnnpack_fp32.pte*"):
            copy = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, folder / "program" / path.name)
        # Another program, so that a mixture shows.
        program = folder / "program" / "toy_cnn_xnnpack_fp32.pte"
        program.write_bytes(b"an earlier export")
        manifest = program.with_name(f"{program.name}.json")
        document = json.loads(manifest.read_text())
        document["pte"]["sha256"] = hash_file(program)
        manifest.write_text(json.dumps(document))

    def check(self, place: Place) -> Iterator[Breach]:
        program = place.folder / "program" / "toy_cnn_xnnpack_fp32.pte"
        manifest = program.with_name(f"{program.name}.json")
        if not manifest.exists():
            return
        missing = {path.name for path in self.template.glob(f"{program.name}*")} - {
            path.name for path in program.parent.iterdir()
        }
        stated = json.loads(manifest.read_text())["pte"]["sha256"]
        if missing or stated != hash_file(program):
            yield Breach("lost", f"a manifest without its program; missing: {sorted(missing)}")


class Reading(Scenario):
    """A command that leaves nothing behind that has to be done again."""

    def check(self, place: Place) -> Iterator[Breach]:
        assert place.folder.is_dir()
        yield from _explained(self.template / "run0")


class Analyze(Reading):
    """`etprof analyze`."""

    def words(self, folder: Path) -> list[object]:
        # By a path from there, as people write it.
        return ["analyze", os.path.relpath(self.template / "run0", folder), "--json"]


class Report(Reading):
    """`etprof report`, with a page and tables."""

    def words(self, folder: Path) -> list[object]:
        return ["report", self.template / "run0", "--format", "html,csv", "--out", folder / "page"]


class Numerics(Reading):
    """`etprof numerics`: an export, and every operator beside eager PyTorch's."""

    def words(self, folder: Path) -> list[object]:
        return ["numerics", "toy_cnn", "--dtype", "fp16", "--out", folder / "numerics.json"]


class ExportLlm(Scenario):
    """`etprof export-llm`: ExecuTorch's export as a process of its own."""

    SIZES: Final = {"dim": 64, "n_layers": 1, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 64}

    def words(self, folder: Path) -> list[object]:
        return ["export-llm", folder / "c.yaml", "--quiet", "--outdir", folder / "program"]

    def prepare(self, folder: Path) -> None:
        (folder / "p.json").write_text(json.dumps(self.SIZES))
        (folder / "c.yaml").write_text("base: {params: p.json}\n")

    def check(self, place: Place) -> Iterator[Breach]:
        made = list(place.folder.glob("program/*.pte.json"))
        if made and not made[0].with_suffix("").exists():
            yield Breach("lost", "a manifest without its program")


class LockedHistory(Reading):
    """`etprof history add` beside a writer that does not end: SQLite waits in its own code."""

    takes_s = 8.0
    WRITER: Final = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(600)
"""

    def words(self, folder: Path) -> list[object]:
        return ["history", "add", self.template / "run0", "--store", folder / "history.sqlite"]

    def prepare(self, folder: Path) -> None:
        command = [sys.executable, "-c", self.WRITER, str(folder / "history.sqlite")]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        (folder / "writer").write_text(str(writer.pid))

    def check(self, place: Place) -> Iterator[Breach]:
        os.kill(int((place.folder / "writer").read_text()), signal.SIGKILL)
        yield from super().check(place)


SCENARIOS: Final[dict[str, type[Scenario]]] = {
    "run": Run,
    "profile": Profile,
    "bench": Bench,
    "history add": HistoryAdd,
    "export": Export,
    "export-llm": ExportLlm,
    "numerics": Numerics,
    "analyze": Analyze,
    "report": Report,
    "history add, locked": LockedHistory,
}


@dataclass(frozen=True)
class Round:
    """What happened in one round."""

    command: str
    number: signal.Signals
    ended: Ended | None
    breaches: tuple[Breach, ...]


@dataclass
class Field:
    """The rounds' common ground."""

    folder: Path
    seed: str
    signals: Sequence[signal.Signals] = SIGNALS
    scenarios: dict[str, Scenario] = field(default_factory=dict)
    durations_s: dict[str, float] = field(default_factory=dict)

    def make_templates(self, names: Sequence[str]) -> None:
        """Exports, measures, and learns how long each command takes."""
        template = self.folder / "template"
        template.mkdir()
        place = Place(template)
        for precision in ("fp32", "fp16"):
            place.run(["export", "toy_cnn", "--dtype", precision, "--outdir", template])
        for number in range(HistoryAdd.RUNS):
            words = Profile(template).words(template)
            place.run([*words[:3], template / f"run{number}", *words[4:]])
        for name in (name for name in SCENARIOS if name in names):
            self.scenarios[name] = SCENARIOS[name](template)
            if self.scenarios[name].takes_s is not None:
                self.durations_s[name] = self.scenarios[name].takes_s or 0
                continue
            whole = self._place(f"whole {name}")
            self.scenarios[name].prepare(whole.folder)
            start = time.monotonic()
            ended = whole.run(self.scenarios[name].words(whole.folder))
            assert ended.exit_code == 0, ended.said
            if name == "bench":
                # Only now are there programs that need not be exported again.
                shutil.copytree(whole.folder / "out" / "programs", template / "bench")
                whole = self._place("whole bench again")
                self.scenarios[name].prepare(whole.folder)
                start = time.monotonic()
                whole.run(self.scenarios[name].words(whole.folder))
            self.durations_s[name] = time.monotonic() - start
            rows = [_read(run)[1] for run in _run_directories(whole.folder)]
            self.scenarios[name].planned = max(rows, default=0)

    def _place(self, name: str) -> Place:
        folder = self.folder / name
        folder.mkdir()
        return Place(folder)

    def play(self, index: int, name: str) -> Round:
        """Plays one round; its folder stays when something is wrong."""
        chooser = random.Random(f"{self.seed}-{index}")  # noqa: S311 - moments, no secrets
        number = chooser.choice(self.signals)
        after_s = chooser.uniform(0, self.durations_s[name])
        place, scenario = self._place(f"round {index} {name}"), self.scenarios[name]
        scenario.prepare(place.folder)
        ended: Ended | None
        breaches: tuple[Breach, ...]
        try:
            ended = place.run(scenario.words(place.folder), number, after_s)
            breaches = (*_judge(place, ended, number), *scenario.check(place))
        except (EtprofError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            ended, breaches = None, (Breach("again", f"{type(error).__name__}: {error}"),)
        for breach in breaches:
            print(
                f"round {index}, {name}, {number.name} after {after_s:.2f} s: {breach.kind}: "
                f"{breach.text}\n  see {place.folder}",
                flush=True,
            )
        if not breaches:
            shutil.rmtree(place.folder)
        return Round(name, number, ended, breaches)


def _judge(place: Place, ended: Ended, number: signal.Signals) -> Iterator[Breach]:
    """What holds for every command."""
    # The signal itself: before Python listens, and after it has stopped to.
    expected = {-number} if number == signal.SIGKILL else {128 + number, -number, 0}
    if ended.was_ended and ended.exit_code not in expected and not _is_pythons_own(ended.said):
        yield Breach("signal", f"exit code {ended.exit_code}: {ended.said[-1000:]}")
    is_prompt = number in {signal.SIGTERM, signal.SIGHUP}
    if is_prompt and ended.was_ended and ended.way_out_s > LONGEST_PROMPT_END_S:
        yield Breach("slow", f"ended {ended.way_out_s:.2f} s after {number.name}")
    if ended.exit_code >= 0 and "Traceback" in ended.said and not _is_pythons_own(ended.said):
        yield Breach("signal", f"a traceback: {ended.said[-1000:]}")
    if ended.rest_s is None:
        yield Breach("orphan", f"processes live {LONGEST_END_S:g} s after etprof's end")
    for name in place.held_locks():
        yield Breach("lock", f"{name} is held")


def _is_pythons_own(said: str) -> bool:
    """Whether Python was interrupted before it came to etprof's first line."""
    return "Traceback" in said and "etprof" not in said


def _show(rounds: Sequence[Round], durations_s: dict[str, float]) -> None:
    table = Table("command", "takes", "rounds", "ended", "longest to etprof's end", "to the last's")
    for kind in ORDER:
        table.add_column(kind, justify="right")
    for name in (*durations_s, "all"):
        own = [each for each in rounds if name in {each.command, "all"}]
        ended = [each.ended for each in own if each.ended and each.ended.was_ended]
        kinds = Counter(breach.kind for each in own for breach in each.breaches)
        table.add_row(
            name,
            f"{durations_s[name]:.1f} s" if name in durations_s else "",
            str(len(own)),
            str(len(ended)),
            f"{max((each.way_out_s for each in ended), default=0):.2f} s",
            f"{max((each.rest_s or 0 for each in ended), default=0):.2f} s",
            *(str(kinds[kind]) for kind in ORDER),
        )
    Console(width=160).print(table)
    by_signal = Counter(each.number.name for each in rounds)
    print(", ".join(f"{name} {count}" for name, count in sorted(by_signal.items())))


def main() -> int:
    """Plays the rounds and says how they went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--lanes", type=int, default=2, help="rounds side by side")
    parser.add_argument("--commands", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    names = [each.name for each in SIGNALS]
    parser.add_argument("--signals", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A background job's; commands would inherit it and rightly never end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"seed {arguments.seed}, {arguments.rounds} rounds", flush=True)
    start = time.monotonic()
    ground = Field(
        Path(tempfile.mkdtemp(prefix="kills-")),
        arguments.seed,
        [signal.Signals[name] for name in arguments.signals],
    )
    ground.make_templates(arguments.commands)
    names = list(ground.scenarios)
    with ThreadPoolExecutor(arguments.lanes) as lanes:
        indices = range(arguments.rounds)
        rounds = list(
            lanes.map(lambda index: ground.play(index, names[index % len(names)]), indices)
        )
    _show(rounds, ground.durations_s)
    print(f"seed {arguments.seed}: {time.monotonic() - start:.0f} s")
    if any(each.breaches for each in rounds):
        return 1
    shutil.rmtree(ground.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
