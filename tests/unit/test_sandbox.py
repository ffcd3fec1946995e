"""The lane that watches commands: what it makes of a trace, and what it lets pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etprof.cli import COMMANDS

pytest.importorskip("executorch")

from tests.sandbox.cases import CASES
from tests.sandbox.events import Event, Rules, read_trace, watch, why_not

TRACE = """\
execve("/usr/bin/git", ["git", "status"], 0x7ffe /* 9 vars */) = 0
execve("/usr/local/bin/git", ["git"], 0x7ffe /* 9 vars */) = -1 ENOENT (No such file or directory)
openat(AT_FDCWD</case>, "m.pte", O_RDONLY|O_CLOEXEC) = 3</case/m.pte>
openat(AT_FDCWD</case>, "gone", O_RDONLY) = -1 ENOENT (No such file or directory)
mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3</case/m.pte>, 0) = 0x7f0
mmap(0x7f0, 4096, PROT_READ|PROT_EXEC, MAP_PRIVATE|MAP_FIXED, 3</case/x.bin>, 0x1000) = 0x7f0
connect(4<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("127.0.0.1")}, 16) = -1
"""


def test_a_trace_is_read() -> None:
    assert list(read_trace(TRACE)) == [
        Event("exec", "/usr/bin/git"),
        Event("open", "/case/m.pte"),
        Event("load", "/case/x.bin"),
        Event(
            "connect",
            'sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("127.0.0.1")',
        ),
    ]


def test_what_nothing_names_is_a_breach(tmp_path: Path) -> None:
    rules = Rules(
        named=(tmp_path / "m.pte", tmp_path / "run"),
        before=frozenset({tmp_path / "m.pte", tmp_path / "run/x", tmp_path / "other"}),
        scratch=(tmp_path / "scratch",),
        folder=tmp_path,
    )
    allowed = [
        Event("open", f"{tmp_path}/m.pte"),
        Event("open", f"{tmp_path}/run/x"),
        Event("open", f"{tmp_path}/made"),
        Event("open", f"{tmp_path}/scratch/x"),
        Event("exec", sys.executable),
        Event("exec", "/usr/bin/git"),
        Event("load", "/usr/lib/libc.so.6"),
        Event("connect", 'sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"'),
    ]
    breaches = [
        Event("open", f"{tmp_path}/other"),
        Event("open", "/home/someone/.ssh/id"),
        Event("exec", "./fsmonitor"),
        Event("exec", f"{tmp_path}/git"),
        Event("exec", "/bin/sh"),
        Event("exec", f"{tmp_path}/m.pte"),
        Event("load", f"{tmp_path}/m.pte"),
        Event("load", f"{tmp_path}/made"),
        Event("connect", "sa_family=AF_INET, sin_port=htons(9)"),
        Event("unpickle", "os.system"),
    ]
    assert rules.breaches([*allowed, *breaches]) == breaches


def test_each_subcommand_is_watched() -> None:
    assert {case.command for case in CASES} == set(COMMANDS)


@pytest.mark.skipif(why_not() is not None, reason=f"nothing can be watched: {why_not()}")
def test_a_command_is_watched_with_all_that_it_starts(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("x")
    program = "import pickle, subprocess; subprocess.run(['cat', 'read']); pickle.loads(b'cos\\nsystem\\n.')"
    watched = watch([sys.executable, "-P", "-c", program], tmp_path, tmp_path / "notes")
    assert (watched.exit_code, watched.output) == (0, "x")
    assert Event("open", str(tmp_path / "read")) in watched.events
    assert Event("unpickle", "os.system") in watched.events
    assert [
        event for event in watched.events if event.kind == "exec" and event.what.endswith("/cat")
    ]
