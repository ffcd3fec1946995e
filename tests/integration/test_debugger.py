"""Debuggers count microkernels: of any program, and of a runner, operator by operator."""

from __future__ import annotations

import ast
import json
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof import cli
from etprof.base.errors import BuildError, TargetError, UsageError
from etprof.export.request import ExportRequest
from etprof.run.kernel_trace import read_kernel_trace
from etprof.run.program import describe_program
from etprof.run.runner_result import read_result
from etprof.targets.debugger.counting import (
    WATCHER,
    DebuggerProgram,
    WatchedCalls,
    WatchedProgram,
    find_debugger,
    literal_of,
    watch,
    write_kernel_trace,
)
from etprof.targets.local import LocalTarget
from etprof.targets.request import RunnerRequest
from etprof.targets.runner import find_host_runner
from tests.integration.emulated import untimed

if TYPE_CHECKING:
    from tests.integration.conftest import Exports

SME2 = "kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa"
NEON = "kai_run_matmul_clamp_f32_f32_f32p8x1biasf32_6x8x4_neon_mla"
PACK = "kai_run_lhs_pack_f32p2vlx1_f32_sme"
NEW = "kai_run_of_another_year"
PROGRAM = f"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void {SME2}(long m, long n, long k) {{ __asm__ volatile("" ::"r"(m + n + k)); }}
__attribute__((noinline)) void {NEON}(long m, long n, long k) {{ __asm__ volatile("" ::"r"(m - n - k)); }}
__attribute__((noinline)) void {NEW}(long m) {{ __asm__ volatile("" ::"r"(m)); }}
static void* work(void* unused) {{
    for (int i = 0; i < 3; ++i) {SME2}(4, 5, 6);
    return unused;
}}
int main(int count, char** words) {{
    for (int i = 1; i < count; ++i) printf("[%s]", words[i]);
    const char* what = words[1];
    if (strcmp(what, "sme2") == 0) {{
        pthread_t threads[2];
        for (int i = 0; i < 2; ++i) pthread_create(&threads[i], 0, work, 0);
        for (int i = 0; i < 2; ++i) pthread_join(threads[i], 0);
        {SME2}(1, 2, 3);
        void* library = dlopen(words[2], RTLD_NOW);
        ((void (*)(long, long, long))dlsym(library, "{PACK}"))(7, 8, 9);
    }}
    {NEON}(1, 1, 1);
    if (strcmp(what, "new") == 0) {NEW}(1);
    if (strcmp(what, "abort") == 0) abort();
    if (strcmp(what, "read") == 0 && getchar() != EOF) return 9;
    if (strcmp(what, "fork") == 0) {{
        if (fork() == 0) {{ {SME2}(1, 1, 1); _exit(0); }}
        wait(0);
    }}
    fprintf(stderr, "to stderr");
    return strcmp(what, "fail") == 0 ? 7 : 0;
}}
"""
LIBRARY = f"""
void {PACK}(long m, long k, long mr) {{ __asm__ volatile("" ::"r"(m * k * mr)); }}
"""


def find_usable(kind: str) -> str:
    """One that is here, and may watch programs: not every container lets one. Skips without."""
    # Debian's numbered package has no name without the number.
    name = next((name for name in (kind, f"{kind}-19") if shutil.which(name)), None)
    if name is None:
        pytest.skip(f"no {kind} here")
    _, calls = watch(find_debugger(name), WatchedProgram(argv=(shutil.which("true") or "",)))
    if calls.problems:
        pytest.skip(f"{name} cannot watch a program here: {calls.problems[0]}")
    return name


@pytest.fixture(scope="module", params=["gdb", "lldb"])
def debugger(request: pytest.FixtureRequest) -> str:
    return find_usable(str(request.param))


@pytest.fixture(scope="module")
def gdb() -> str:
    return find_usable("gdb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, a library that it loads, and the same program stripped, at a path with a blank."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc here")
    folder = tmp_path_factory.mktemp("it's a folder")
    for name, text in (("program", PROGRAM), ("library", LIBRARY)):
        (folder / f"{name}.c").write_text(text)
    shared = [compiler, "-O1", "-shared", "-fPIC", "-o", str(folder / "library.so")]
    subprocess.run([*shared, str(folder / "library.c")], check=True)
    # Their names come from the symbol table, as those in ExecuTorch's libraries, or from DWARF.
    for flag, name in (("-O1", "program"), ("-g", "described"), ("-s", "stripped")):
        words = [compiler, "-O1", flag, "-o", str(folder / name), str(folder / "program.c")]
        subprocess.run([*words, "-ldl", "-lpthread"], check=True)
    return folder


def count(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, dict[str, object]]:
    code = cli.main(["count-kernels", "--json", *map(str, words)])
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return code, document


def calls_of(document: dict[str, object]) -> dict[str, int]:
    rows = document["kernels"]
    assert isinstance(rows, list)
    return {row["function"]: row["calls"] for row in rows if row["calls"]}


@pytest.mark.parametrize("name", ["program", "described"])
def test_calls_of_all_threads_and_of_loaded_libraries_are_counted(
    debugger: str, folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (folder / name, "sme2", folder / "library.so")
    code, document = count(capsys, "--debugger", debugger, "--", *program)
    assert (code, document["verdict"], document["problem"]) == (0, "called", None)
    assert calls_of(document) == {SME2: 7, PACK: 1, NEON: 1}


@pytest.mark.parametrize(
    ("what", "code", "verdict", "problem"),
    [
        ("neon", 1, "not called", None),
        ("fail", 2, "not known", "the program ended with exit code 7"),
        ("abort", 2, "not known", "the program was ended by SIGABRT"),
        ("read", 1, "not called", None),
    ],
)
def test_nothing_counted_is_no_proof_where_the_program_failed(  # noqa: PLR0917 - a row each
    debugger: str, folder: Path, what: str, code: int, verdict: str, problem: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    done, document = count(capsys, "--debugger", debugger, "--", folder / "program", what)
    assert (done, document["verdict"], document["problem"]) == (code, verdict, problem)
    assert document["kernels"] == [
        {"function": NEON, "level": "neon", "calls": 1},
        {"function": SME2, "level": "sme2", "calls": 0},
        {"function": NEW, "level": None, "calls": 0},
    ]


def test_a_microkernel_of_an_unknown_kind_leaves_the_verdict_open(
    debugger: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = count(capsys, "--debugger", debugger, "--", folder / "program", "new")
    assert (code, document["verdict"]) == (2, "not known")
    assert document["problem"] == f"etprof cannot read the name {NEW}"
    assert calls_of(document) == {NEON: 1, NEW: 1}


def test_a_program_that_takes_too_long_does_not_outlive_the_command(
    debugger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """lldb's server went, and left the program running."""
    sleep = tmp_path / "sleeper"
    sleep.write_bytes(Path(shutil.which("sleep") or "").read_bytes())
    sleep.chmod(0o755)
    words = ["count-kernels", "--debugger", debugger, "--timeout", "3", "--", str(sleep), "60"]
    assert cli.main(words) == 5
    assert f"{sleep} 60 did not end within 3 s" in capsys.readouterr().err
    end = time.monotonic() + 10
    while is_running(sleep):
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.1)


def is_running(program: Path) -> bool:
    """Whether any process has the program in its command line; a zombie has none."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(program).encode() in (folder / "cmdline").read_bytes():
                return True
    return False


def test_another_process_leaves_the_verdict_open(
    debugger: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody counts there: a worker that computes would be told as none."""
    if "lldb" in debugger:
        pytest.skip("lldb does not say that a process was started")
    code, document = count(capsys, "--debugger", debugger, "--", folder / "program", "fork")
    assert (code, document["verdict"]) == (2, "not known")
    assert "started other processes" in str(document["problem"])


def test_a_pattern_with_alternatives_counts_all_of_them(
    gdb: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--debugger", gdb, "--kernels", "^kai_run_lhs_pack|_neon_mla$")
    code, document = count(capsys, *flags, "--", folder / "program", "sme2", folder / "library.so")
    assert (code, calls_of(document)) == (0, {PACK: 1, NEON: 1})


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("^kai_run_", "kai_run_"), ("xnn_f16", "xnn_f16"), ("_sme2?_", "_sme"), ("ab*", "a"),
        ("a{2}", ""), ("a|b", ""), (".*", ""), ("(ab)", ""),
    ],
)  # fmt: skip
def test_every_name_that_fits_a_pattern_has_its_literal(pattern: str, literal: str) -> None:
    assert literal_of(pattern) == literal


def test_a_program_without_names_is_never_said_to_call_none(
    debugger: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = count(capsys, "--debugger", debugger, "--", folder / "stripped", "neon")
    assert (code, document["verdict"], document["kernels"]) == (2, "not known", [])
    assert "stripped" in str(document["problem"])


def test_other_functions_can_be_counted(
    debugger: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--debugger", debugger, "--kernels", "kai_.*_neon_")
    code, document = count(capsys, *flags, "--", folder / "program", "neon")
    assert (code, calls_of(document)) == (0, {NEON: 1})


def test_the_program_gets_its_words_and_its_own_output_is_kept_apart(
    debugger: str, folder: Path
) -> None:
    words = ("neon", "a  b", "x'y\"z", "$HOME", "\\t", "*", "", "-q")
    program = WatchedProgram(argv=(folder / "program", *words))
    completed, calls = watch(find_debugger(debugger), program)
    assert calls.problems == ()
    assert completed.stdout == "".join(f"[{word}]" for word in words)
    assert completed.stderr == "to stderr"


@pytest.mark.parametrize(
    ("server", "client"), [("gdbserver", "gdb"), ("lldb-server-19", "lldb-19")]
)
def test_a_program_that_a_server_holds_is_counted(
    server: str, client: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(server) is None or shutil.which(client) is None:
        pytest.skip(f"no {server} here")
    find_usable(client)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [server, "gdbserver", address, "--"] if "lldb" in server else [server, address]
    process = subprocess.Popen(
        [*words, folder / "program", "sme2", folder / "library.so"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(1)
        flags = ["--debugger", client, "--connect", address]
        code, document = count(capsys, *flags, "--", folder / "program")
    finally:
        process.kill()
        process.wait()
    assert (code, calls_of(document)) == (0, {SME2: 7, PACK: 1, NEON: 1})


def test_a_debugger_that_fails_leaves_the_verdict_open(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "gdb"
    wrong.write_text("#!/bin/sh\necho 'ptrace: Operation not permitted.' >&2\nexit 1\n")
    wrong.chmod(0o755)
    code, document = count(capsys, "--debugger", wrong, "--", folder / "program", "sme2")
    assert (code, document["verdict"]) == (2, "not known")
    assert "ptrace: Operation not permitted." in str(document["problem"])


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["--", "no-such-program"], "no program 'no-such-program'", 2),
        (["--kernels", "(", "--", "true"], "no regular expression", 2),
        (["--debugger", "DEBUGGER", "--kernels", "a|b", "--", "true"], "without |", 2),
        (["--", "SCRIPT"], "is a script: give the program that runs it", 2),
        (["--sysroot", "x", "--", "true"], "give --connect too", 2),
        (["--debugger", "no-such-gdb", "--", "true"], "no debugger 'no-such-gdb'", 3),
    ],
)
def test_what_cannot_be_used_is_named(
    words: list[str], said: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_ins = {"DEBUGGER": tmp_path / "lldb", "SCRIPT": tmp_path / "script"}
    for path in stand_ins.values():
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    words = [str(stand_ins.get(word, word)) for word in words]
    assert cli.main(["count-kernels", *words]) == code
    assert said in capsys.readouterr().err


def test_qemu_is_for_gdb(tmp_path: Path) -> None:
    other = tmp_path / "lldb"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert find_debugger(str(other)).is_lldb
    with pytest.raises(BuildError, match="name gdb-multiarch"):
        find_debugger(str(other), is_foreign=True)


@pytest.mark.parametrize("path", [WATCHER, WATCHER.with_name("call_log.py")], ids=lambda p: p.name)
def test_the_watcher_runs_in_the_python_of_any_debugger(path: Path) -> None:
    """Xcode's lldb has 3.9, and no package of ours."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    # The one is beside it, the other for those who check types.
    imported -= {"call_log", "etprof.targets.debugger.call_log"}
    assert {name.split(".")[0] for name in imported} <= {*sys.stdlib_module_names}


def trace_here(exports: Exports, run: Path, name: str | None) -> Path:
    program = describe_program(exports.get(ExportRequest("toy_cnn", "fp32")).pte)
    run.mkdir()
    request = RunnerRequest(
        model=program.model, inputs=program.inputs, iterations=2, warmup=1, threads=2,
        kernel_trace=run / "kernels.json", result=run / "result.json",
    )  # fmt: skip
    LocalTarget(debugger=name).run(request)
    return run


def test_operators_get_their_calls_as_from_a_runner_that_counts(
    debugger: str, exports: Exports, tmp_path: Path
) -> None:
    linked = trace_here(exports, tmp_path / "linked", None)
    watched = trace_here(exports, tmp_path / "watched", debugger)
    by_runner, by_debugger = (read_kernel_trace(run / "kernels.json") for run in (linked, watched))
    assert untimed(by_debugger) == untimed(by_runner)
    assert (by_runner.counted_by, by_debugger.counted_by) == ("runner", "debugger")
    assert [e.phase for e in by_debugger.executions] == ["First", "Warmup", "Execute", "Execute"]
    assert by_debugger.all_operators_named
    assert len(by_debugger.operators) > 5


def test_marks_that_do_not_fit_the_etdump_are_refused(
    gdb: str, exports: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that cannot be given to operators is no count of none."""
    kept: list[tuple[WatchedCalls, Path, Path]] = []

    def keep(calls: WatchedCalls, etdump: Path, _result: object, path: Path) -> None:
        kept.append((calls, Path(shutil.copy(etdump, tmp_path)), path))

    monkeypatch.setattr("etprof.targets.debugger.counting.write_kernel_trace", keep)
    run = trace_here(exports, tmp_path / "run", gdb)
    (calls, etdump, path), result = kept[0], read_result(run / "result.json")
    write_kernel_trace(calls, etdump, result, path)
    assert read_kernel_trace(path).all_operators_named
    spans = [span for span in calls.spans if span.is_execution]
    fewer = calls.model_copy(update={"spans": tuple(spans[1:])})
    with pytest.raises(TargetError, match="saw 3 inferences of 4"):
        write_kernel_trace(fewer, etdump, result, path)
    # AND without readings of the clock no operator can be told from the next
    blind = spans[-1].model_copy(
        update={"marks": spans[-1].marks.replace("B", "P"), "times_ns": spans[-1].times_ns}
    )
    with pytest.raises(TargetError, match="too few readings of the clock"):
        write_kernel_trace(
            calls.model_copy(update={"spans": (*spans[:-1], blind)}), etdump, result, path
        )
    last = spans[-1].marks.index("d") + 1
    half = spans[-1].model_copy(
        update={"marks": spans[-1].marks[:last], "times_ns": spans[-1].times_ns[:last]}
    )
    with pytest.raises(TargetError, match="saw 1 calls of XNNPACK, the ETDump has 2"):
        write_kernel_trace(
            calls.model_copy(update={"spans": (*spans[:-1], half)}), etdump, result, path
        )
    (tmp_path / "empty.etdump").touch()
    with pytest.raises(TargetError, match="name a runner with the event tracer"):
        write_kernel_trace(calls, tmp_path / "empty.etdump", result, path)
    silent = result.model_copy(update={"sme": None})
    with pytest.raises(TargetError, match="which SME mode"):
        write_kernel_trace(calls, etdump, silent, path)


def test_a_runner_of_ones_own_is_the_one_that_is_counted(
    gdb: str,
    exports: Exports,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The installed one was counted in its place, and its counts refused as another build's."""
    own = tmp_path / "etprof-runner"
    own.write_bytes(find_host_runner().read_bytes())
    own.chmod(0o755)
    program = str(exports.get(ExportRequest("toy_cnn", "fp32")).pte)
    words = ["profile", program, "--debugger", gdb, "--runner", str(own), "--threads", "1"]
    quick = [
        "--blocks",
        "1",
        "--min-seconds",
        "0.01",
        "--no-wait",
        "--outdir",
        str(tmp_path / "run"),
    ]
    (packages,) = find_spec("executorch").submodule_search_locations  # type: ignore[union-attr,misc]
    monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(packages, "lib")))
    assert cli.main([*words, *quick]) == 0, capsys.readouterr().err
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    launches = {launch["purpose"]: launch for launch in manifest["launches"]}
    assert launches["kernels"]["error"] is None
    assert launches["kernels"]["runner_sha256"] == launches["timing"]["runner_sha256"]
    assert cli.main(["analyze", str(tmp_path / "run"), "--json"]) == 0
    assert '"counted_by": "debugger"' in capsys.readouterr().out


def test_a_runner_that_counts_by_itself_is_refused(
    gdb: str, exports: Exports, tmp_path: Path
) -> None:
    """Its wrappers have the names of the functions that they call: each call counted twice."""
    program = describe_program(exports.get(ExportRequest("toy_cnn", "fp32")).pte)
    request = RunnerRequest(
        model=program.model, inputs=program.inputs, iterations=1, kernel_trace=tmp_path / "k.json",
        result=tmp_path / "r.json", runner=find_host_runner(tracing=True),
    )  # fmt: skip
    with pytest.raises(UsageError, match="counts by itself"):
        LocalTarget(debugger=gdb).run(request)


def test_the_first_debugger_of_this_machine_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"lldb": "/opt/lldb", "gdb-multiarch": "/opt/gdb-multiarch"}
    monkeypatch.setattr("etprof.targets.debugger.counting.shutil.which", here.get)
    assert find_debugger() == DebuggerProgram(Path("/opt/gdb-multiarch"), is_lldb=False)
    del here["gdb-multiarch"]
    assert find_debugger() == DebuggerProgram(Path("/opt/lldb"), is_lldb=True)
    with pytest.raises(BuildError, match="install gdb-multiarch"):
        find_debugger(is_foreign=True)


def test_a_profile_says_that_a_debugger_counted(
    debugger: str, exports: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`etprof profile toy_cnn --debugger lldb`, with the debugger that is here."""
    program = str(exports.get(ExportRequest("toy_cnn", "fp32")).pte)
    quick = ["--blocks", "1", "--min-seconds", "0.01", "--threads", "1", "--no-wait"]
    words = ["profile", program, "--debugger", debugger, "--outdir", str(tmp_path / "run"), *quick]
    assert cli.main([*words, "--full"]) == 0
    assert "A debugger counted these calls at breakpoints" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["target"]["debugger"] == debugger
    assert "kernels" in {launch["purpose"] for launch in manifest["launches"]}
    assert cli.main(["analyze", str(tmp_path / "run"), "--json"]) == 0
    assert '"counted_by": "debugger"' in capsys.readouterr().out


def test_infer_py_is_counted_as_any_program(
    gdb: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`etprof count-kernels -- python infer.py`: libraries that Python loads count too."""
    script = tmp_path / "infer.py"
    script.write_text(f"import ctypes; ctypes.CDLL({str(folder / 'library.so')!r}).{PACK}(1, 2, 3)")
    code, document = count(capsys, "--debugger", gdb, "--", sys.executable, script)
    assert (code, calls_of(document)) == (0, {PACK: 1})
