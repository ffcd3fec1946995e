"""Fails on what no command line named: `python -m tests.sandbox --help`.

Each subcommand runs on each format that it accepts. Every process is watched by strace, Python by
an audit hook as well. Nothing may be started, loaded, connected to, unpickled or opened but what
the command line names, what that names, and what the installation has. At last planted breaches
have to be seen: a lane that sees nothing proves nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from etprof import _etdump
from etprof.cli import COMMANDS
from tests.sandbox.cases import CASES, Case, copy_tree, make_trees
from tests.sandbox.events import Event, Rules, Watched, watch, why_not

PLANTED = {
    "load": "import torch; torch.ops.load_library('weights_map.bin')",
    "exec": "import subprocess; subprocess.run(['./weights_map.bin'])",
    "connect": "import socket; socket.socket().connect_ex(('127.0.0.1', 9))",
    "open": "open('pyproject.toml').read()",
    "unpickle": "import pickle; pickle.load(open('pickled', 'rb'))",
}
"""What each kind of breach is planted as, before the command begins."""
SKIPPED = 77
"""As a lane of .ci/lanes.py ends that could not run: no check passes because it did not look."""
XDG = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
LIBRARY = "int planted(void) { return 0; }"


def main() -> int:
    """Returns 0 when nothing was done unnamed and all that was planted was seen, else 1 or 77."""
    parser = argparse.ArgumentParser(prog="python -m tests.sandbox", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="commands with this in them")
    arguments = parser.parse_args()
    problem = why_not()
    if problem is not None:
        print(f"sandbox: nothing was watched: {problem}")
        return SKIPPED
    missing = set(COMMANDS) - {case.command for case in CASES}
    if missing:
        print(f"sandbox: no case has {', '.join(sorted(missing))}")
        return 1
    with tempfile.TemporaryDirectory(prefix="sandbox-") as name:
        trees = Path(name, "trees")
        trees.mkdir()
        etprof = [str(Path(sysconfig.get_path("scripts"), "etprof"))]
        make_trees(trees, etprof)
        chosen = [case for case in CASES if arguments.only in case.line]
        failed = [
            case for number, case in enumerate(chosen) if not _passes(case, trees, etprof, number)
        ]
        unseen = [kind for kind in PLANTED if not _is_seen(kind, trees)]
    print(
        f"{len(chosen)} commands watched, {len(failed)} did what was not named; "
        f"{len(PLANTED) - len(unseen)} of {len(PLANTED)} planted breaches were seen"
    )
    return 1 if failed or unseen else 0


def _passes(case: Case, trees: Path, etprof: Sequence[str], number: int) -> bool:
    """Watches one command, and tells what it did unasked."""
    folder = trees.parent / f"case{number}"
    copy_tree(trees, case, folder)
    watched, breaches = _watch(case, folder, [*etprof, *case.line.split()])
    shutil.rmtree(folder)
    is_expected = watched.exit_code in case.codes
    mark = "ok" if is_expected and not breaches else "BREACH" if breaches else "FAILED"
    print(f"{mark:6}  {watched.exit_code:3}  {len(watched.events):6} events  etprof {case.line}")
    for breach in breaches[:20]:
        print(f"        {breach}")
    if not is_expected:
        print(f"        exit code {watched.exit_code}: {watched.output.strip()[-500:]}")
    sys.stdout.flush()
    return is_expected and not breaches


def _is_seen(kind: str, trees: Path) -> bool:
    """Whether a breach is seen that is planted before a command that does nothing of the sort."""
    case = Case("program", "export-llm llm.yaml --dry-run")
    folder = trees.parent / f"planted-{kind}"
    copy_tree(trees, case, folder)
    # Any library will do; modules of the standard library are built into some Pythons.
    shutil.copy(_etdump.__file__, folder / "weights_map.bin")
    if kind == "exec":
        shutil.copy(shutil.which("true") or "", folder / "weights_map.bin")
    (folder / "pickled").write_bytes(b"cos\nsystem\n.")
    begin = "import sys; from etprof.cli import main\n"
    program = f"{begin}{PLANTED[kind]}\nsys.exit(main({case.line.split()!r}))"
    watched, breaches = _watch(case, folder, [sys.executable, "-P", "-c", program])
    if kind not in {breach.kind for breach in breaches}:
        print(watched.output[-1000:])
    seen = [breach for breach in breaches if breach.kind == kind]
    print(f"{'seen' if seen else 'UNSEEN':6}  planted: {PLANTED[kind]}")
    return bool(seen)


def _watch(case: Case, folder: Path, words: Sequence[str]) -> tuple[Watched, list[Event]]:
    """Runs one command in its folder; returns what it did, and what of that nobody named."""
    notes = folder.with_name(f"{folder.name}-notes")
    before = frozenset(path for path in folder.rglob("*") if not path.is_dir())
    environment = {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "ETPROF_LOCKS": str(folder / "locks"),
        # Nothing of whoever runs the lane, such as an emulator that is set up.
        "ETPROF_CACHE": str(folder / "home" / "cache"),
        **{name: str(folder / "home" / name) for name in XDG},
    }
    if case.adb_port is not None:
        environment["ANDROID_ADB_SERVER_PORT"] = str(case.adb_port)
        # It looks for emulators on the ports up to there.
        environment["ADB_LOCAL_TRANSPORT_MAX_PORT"] = "5553"
        # It would be waited for.
        script = '"$@"; code=$?; adb kill-server 2>/dev/null; exit $code'
        words = ["sh", "-c", script, "sh", *words]
    watched = watch(words, folder, notes, **environment)
    scratch = (*(folder / name for name in ("home", "tmp", "locks", ".git")), notes)
    rules = Rules(
        named=case.named(folder),
        before=before,
        scratch=scratch,
        folder=folder,
        adb_port=case.adb_port,
        programs=case.programs,
    )
    return watched, [*rules.breaches(watched.events)]


if __name__ == "__main__":
    sys.exit(main())
