"""Chooses the lanes of a run and runs them: those of every run, and those of what has changed.

    .ci/run [fast|full|resume]      also ETPROF_CI=full .ci/run
    python .ci/lanes.py list [fast|full|resume]    the lanes of such a run, and why these

`lanes.toml` is the table, `.ci/lane NAME` a lane's commands. A lane ends with 0 (passed), 77
(cannot run here: its last line says why) or anything else (failed). A checkout whose last full
run is unknown or too long ago has a full run; that writes `.ci/full.json`.

`resume` goes on with a full run that was red or cut off: what passed here, and what nothing has
changed for since, is not run again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).absolute().parents[1]
TABLE = ROOT / ".ci" / "lanes.toml"
RECORD = ROOT / ".ci" / "full.json"
PROGRESS = ROOT / "build" / "ci" / "progress.json"
"""What a full run has come to so far in this checkout, for `resume`."""
SKIPPED = 77
"""The exit code by which automake's test drivers know a test that cannot run here."""
LONGEST_LANE_S = 40 * 60
"""None takes half of it; one that hangs must not take the others' time."""
Kind = Literal["fast", "full", "resume"]


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One entry of the table."""

    title: str
    cores: int
    after: Sequence[str] = ()
    always: bool = False
    within: str | None = None
    tests: Sequence[str] = ()


@dataclass(frozen=True)
class LaneTable:
    """What `lanes.toml` says."""

    most_commits: int
    cores: int
    lane: Mapping[str, Lane]
    folders: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls) -> LaneTable:
        """Reads the file; raises ValueError for the name of a lane that it does not have."""
        document = tomllib.loads(TABLE.read_text(encoding="utf-8"))
        lanes = {name: Lane(**entry) for name, entry in document.pop("lane").items()}
        table = cls(lane=lanes, **document)
        named = {name for names in table.folders.values() for name in names} - {"*"}
        named |= {name for lane in lanes.values() for name in lane.after}
        named |= {lane.within for lane in lanes.values() if lane.within}
        if unknown := named - set(lanes):
            raise ValueError(f"{TABLE.name}: no such lane: {', '.join(sorted(unknown))}")
        return table

    def lanes_of(self, path: str) -> set[str]:
        """The lanes of one changed file; all of them for a path that no folder begins."""
        module = path.removeprefix("tests/integration/")
        if lanes := {name for name, lane in self.lane.items() if module in lane.tests}:
            return lanes
        prefixes = [prefix for prefix in self.folders if path.startswith(prefix)]
        names = self.folders[max(prefixes, key=len)] if prefixes else ("*",)
        return set(self.lane) if "*" in names else set(names)

    def lanes_for(self, paths: Iterable[str]) -> list[str]:
        """The lanes of every run, and those of what has changed."""
        wanted = {name for name, lane in self.lane.items() if lane.always}
        for path in paths:
            wanted |= self.lanes_of(path)
        return [
            name for name in self.lane if name in wanted and self.lane[name].within not in wanted
        ]

    def all_lanes(self) -> list[str]:
        """The lanes of a full run."""
        return [name for name, lane in self.lane.items() if lane.within is None]


def git(*words: str) -> list[str]:
    """The lines that git prints; raises CalledProcessError when it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def last_full_run() -> tuple[str, int] | None:
    """The commit of the last full run and how many commits ago it was; None when unknown."""
    try:
        commit = str(json.loads(RECORD.read_text(encoding="utf-8"))["commit"])
        git("merge-base", "--is-ancestor", commit, "HEAD")
        return commit, len(git("rev-list", f"{commit}..HEAD"))
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError):
        # No record, a damaged one, or a shallow clone that does not have the commit.
        return None


def changed_paths(commit: str) -> list[str]:
    """What differs from `commit`, committed or not; of what was moved both names."""
    changed = git("diff", "--name-only", "--no-renames", commit, "--")
    new = git("ls-files", "--others", "--exclude-standard")
    return sorted({*changed, *new} - {str(RECORD.relative_to(ROOT))})


def read_progress() -> dict[str, dict[str, str]]:
    """What passed or could not run in the last full run, with its commit; empty when unknown."""
    try:
        progress = json.loads(PROGRESS.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(progress)


def lanes_to_resume(table: LaneTable, progress: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The lanes of a full run that are still to run, with those that they come after."""
    changes = {commit: changed_paths(commit) for commit in {e["commit"] for e in progress.values()}}

    def has_passed(name: str) -> bool:
        if name not in progress:
            return False
        paths = changes[progress[name]["commit"]]
        return not paths or name not in table.lanes_for(paths)

    wanted = {name for name in table.all_lanes() if not has_passed(name)}
    while more := {name for lane in wanted for name in table.lane[lane].after} - wanted:
        wanted |= more
    return [name for name in table.all_lanes() if name in wanted]


def choose(table: LaneTable, kind: Kind) -> tuple[list[str], bool, str]:
    """The lanes of this run, whether it ends a full run, and why in one line."""
    if kind == "resume":
        progress = read_progress()
        names = lanes_to_resume(table, progress)
        done = [name for name in progress if name not in names]
        return (
            names,
            True,
            f"goes on with a full run that has passed: {', '.join(done) or 'no lane'}",
        )
    last = last_full_run()
    if last is None:
        return table.all_lanes(), True, "last full run: unknown; this run is a full one"
    commit, count = last
    ago = f"last full run: {count} commits ago ({commit[:7]})"
    if kind == "full":
        return table.all_lanes(), True, f"{ago}; this run is a full one"
    if count > table.most_commits:
        why = f"{ago}, more than {table.most_commits}; this run is a full one"
        return table.all_lanes(), True, why
    lanes = table.lanes_for(changed_paths(commit))
    left_out = [name for name in table.all_lanes() if name not in lanes]
    if not left_out:
        return lanes, False, f"{ago}; what has changed since is of every lane"
    return lanes, False, f"{ago}; nothing has changed since for: {', '.join(left_out)}"


@dataclass(frozen=True)
class LaneResult:
    """How a lane ended."""

    name: str
    verdict: Literal["passed", "FAILED", "skipped"]
    seconds: int
    cpu_seconds: int | None
    """Of all that it waited for; much less than its cores times its seconds: it waits for something
    else. None where it was ended."""
    output: Path
    reason: str = ""

    @property
    def took(self) -> str:
        """How long it took, and how much of that it computed."""
        computed = "" if self.cpu_seconds is None else f", {self.cpu_seconds} s of CPU"
        return f"{self.seconds} s{computed}"


class LaneTimer(threading.Timer):
    """Ends a lane and all that it has started, when it takes too long."""

    def __init__(self, process_id: int) -> None:
        super().__init__(LONGEST_LANE_S, self._end)
        self._process_id = process_id
        self.has_ended_it = False

    def _end(self) -> None:
        # It may have ended at this very moment.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process_id, signal.SIGKILL)
            self.has_ended_it = True


@dataclass
class LaneRun:
    """Runs lanes, as many at a time as the table has cores for."""

    table: LaneTable
    folder: Path
    progress: FullRunProgress | None = None
    results: dict[str, LaneResult] = field(default_factory=dict)
    _children: set[subprocess.Popen[bytes]] = field(default_factory=set)

    def run(self, names: Sequence[str]) -> None:
        """Runs all of them, each when those that it comes after have ended, however that was."""
        waiting = list(names)
        running: dict[Future[LaneResult], str] = {}
        with ThreadPoolExecutor(self.table.cores) as threads:
            try:
                while waiting or running:
                    for name in self._startable(waiting, list(running.values())):
                        waiting.remove(name)
                        print(f"=== {name} starts", flush=True)
                        running[threads.submit(self._run_lane, name)] = name
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._take(running.pop(future), future)
            except BaseException:
                self.end()
                raise

    def end(self) -> None:
        """Ends what still runs, with all that it has started."""
        for child in list(self._children):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)

    def _startable(self, waiting: Sequence[str], running: Sequence[str]) -> list[str]:
        """The next lanes that the free cores and what they need allow, in the table's order."""
        free = self.table.cores - sum(self.table.lane[name].cores for name in running)
        names = []
        for name in waiting:
            lane = self.table.lane[name]
            is_ready = not set(lane.after) & {*waiting, *running}
            if is_ready and lane.cores <= free:
                names.append(name)
                free -= lane.cores
        return names

    def _run_lane(self, name: str) -> LaneResult:
        output = self.folder / f"{name}.txt"
        start = time.monotonic()
        with output.open("wb") as stream:
            child = subprocess.Popen(
                [ROOT / ".ci" / "lane", name],
                cwd=ROOT,
                env={**os.environ, "ETPROF_CI_WORK": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._children.add(child)
            timer = LaneTimer(child.pid)
            timer.start()
            try:
                # Not Popen's, which does not say what it and all that it waited for computed.
                _, status, usage = os.wait4(child.pid, 0)
                code = child.returncode = os.waitstatus_to_exitcode(status)
            finally:
                timer.cancel()
                self._children.discard(child)
            if timer.has_ended_it:
                stream.write(f"\nnot ended within {LONGEST_LANE_S} s\n".encode())
        seconds = round(time.monotonic() - start)
        # Whoever is killed has waited for nobody, whose time is not in its own.
        cpu_seconds = None if timer.has_ended_it else round(usage.ru_utime + usage.ru_stime)
        if code == SKIPPED:
            return LaneResult(name, "skipped", seconds, cpu_seconds, output, last_line(output))
        return LaneResult(name, "FAILED" if code else "passed", seconds, cpu_seconds, output)

    def _take(self, name: str, future: Future[LaneResult]) -> None:
        """Keeps a result and prints what the lane printed."""
        result = self.results[name] = future.result()
        if self.progress is not None:
            self.progress.add(result)
        print(f"=== {name}: {result.verdict} ({result.took})")
        print(result.output.read_text(encoding="utf-8", errors="replace"), flush=True)


def last_line(output: Path) -> str:
    """The last line of a lane's output that is not empty."""
    lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no reason given")


def why_failed(output: Path) -> list[str]:
    """The failed tests with what they say, where there are some; else the last lines."""
    # Not what pip says of its index, which buries everything else.
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line[:300] for line in lines if line.strip() and "WARNING: Location " not in line]
    pattern = re.compile(r"^(FAILED|ERROR) |^E  |\*\*\*Failed|error:")
    return [line for line in lines if pattern.search(line)][-40:] or lines[-20:]


def summary(table: LaneTable, results: Sequence[LaneResult], why: str) -> str:
    """A line a lane, and the counts."""
    lines = []
    for result in results:
        title = table.lane[result.name].title
        reason = f": {result.reason}" if result.reason else ""
        lines.append(f"{result.verdict:8} {result.name}: {title} ({result.took}){reason}")
        if result.verdict == "FAILED":
            lines += [f"    {line}" for line in why_failed(result.output)]
    counts = [sum(r.verdict == v for r in results) for v in ("passed", "FAILED", "skipped")]
    return "\n".join([*lines, why, "{} passed, {} failed, {} skipped".format(*counts)])


@dataclass
class FullRunProgress:
    """How the lanes of a full run ended that did not fail, and at which commit; kept as they end."""

    commit: str
    is_kept: bool
    """Not with uncommitted changes: no commit says then what passed."""
    lanes: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def begin(cls, kind: Kind) -> FullRunProgress:
        """Begins anew, or where the last full run of this checkout was."""
        changes = {line[3:] for line in git("status", "--porcelain")}
        is_clean = changes <= {str(RECORD.relative_to(ROOT))}
        lanes = read_progress() if kind == "resume" else {}
        return cls(git("rev-parse", "HEAD")[0], is_clean, lanes)

    def add(self, result: LaneResult) -> None:
        """Keeps how a lane ended; one that failed has not passed, whatever it did before."""
        self.lanes.pop(result.name, None)
        if result.verdict != "FAILED":
            end = f"{result.verdict} {result.took}"
            self.lanes[result.name] = {"commit": self.commit, "end": end}
        if self.is_kept:
            PROGRESS.parent.mkdir(parents=True, exist_ok=True)
            PROGRESS.write_text(json.dumps(self.lanes, indent=1) + "\n", encoding="utf-8")


def keep_record(progress: FullRunProgress, seconds: int) -> None:
    """Writes `full.json`: which commit passed when, and how long each lane took."""
    commit = progress.commit
    document = {
        "commit": commit,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "seconds": seconds,
        "lanes": {
            name: entry["end"] + (f" at {entry['commit'][:7]}" if entry["commit"] != commit else "")
            for name, entry in progress.lanes.items()
        },
    }
    RECORD.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def run(kind: Kind) -> int:
    """Runs the lanes; returns 1 when one failed."""
    table = LaneTable.read()
    names, is_full, why = choose(table, kind)
    print(why, flush=True)
    start = time.monotonic()
    progress = FullRunProgress.begin(kind) if is_full else None
    with tempfile.TemporaryDirectory(prefix="etprof ci ") as folder:
        lane_run = LaneRun(table, Path(folder), progress)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        lane_run.run(names)
        results = [lane_run.results[name] for name in names]
        print(f"=== summary\n{summary(table, results, why)}", flush=True)
    has_failed = any(result.verdict == "FAILED" for result in results)
    if progress is not None and progress.is_kept and not has_failed:
        keep_record(progress, round(time.monotonic() - start))
    return int(has_failed)


def main(words: Sequence[str]) -> int:
    """Acts on the command line; returns the exit code."""
    match words:
        case ["run", ("fast" | "full" | "resume") as kind]:
            return run(kind)
        case ["list", ("fast" | "full" | "resume") as kind]:
            names, _, why = choose(LaneTable.read(), kind)
            print("\n".join([*names, why]))
            return 0
        case ["tests", lane]:
            print("\n".join(LaneTable.read().lane[lane].tests))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
