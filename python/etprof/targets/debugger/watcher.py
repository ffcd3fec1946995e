"""Runs inside gdb or lldb: counts calls of functions at breakpoints, and writes them as JSON.

A program of its own. It imports nothing of etprof and uses no word newer than Python 3.9, which
Xcode's lldb has: the debugger brings its own Python. The file that ETPROF_WATCH names says what to
start and what to watch (`counting.py` writes it, and reads the answer).

Every watched function has a breakpoint at its first instruction, where its arguments still are in
their registers. The program stops there, is noted, and goes on by itself.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import shlex
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

VARIABLE, PATH_VARIABLE = "ETPROF_WATCH", "ETPROF_WATCHER"
if TYPE_CHECKING:
    from etprof.targets.debugger.call_log import Action, CallLog
else:
    # Beside this file, which lldb runs as a text without a path.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path(os.environ[PATH_VARIABLE]).parent))
    from call_log import CallLog

_NS_PER_SECOND = 10**9
_CLOCK_MONOTONIC = 1
"""Of Linux's clock_gettime(2)."""
_MACH_CLOCK = "_nsec_np"
_TIMESPEC_BYTES = 16
_WORD_BYTES = 8
_LISTED = re.compile(r"^(0x[0-9a-f]+)\s+(\S.*)$", re.MULTILINE)
"""A function in gdb's list; with `--readnever` every one stands there like this."""
_LONGEST_START_S = 30.0
_PAUSE_S = 0.05
_CHILDREN = "the program started other processes, whose calls are not counted"
_ENDED = b"ended\n"
_CRASHES = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGQUIT", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""Signals at which lldb stops before a program ends by them."""
_MOST_SIGNALS = 1000
"""A program that gets more without ending is not going on."""


class Architecture(NamedTuple):
    """Where a function finds its arguments, and where its caller goes on."""

    arguments: tuple[str, ...]
    result: str
    stack: str
    link: str | None
    """The register that holds the return address; None where the stack does."""


AARCH64 = Architecture(("x0", "x1", "x2", "x3"), "x0", "sp", "x30")
X86_64 = Architecture(("rdi", "rsi", "rdx", "rcx"), "rax", "rsp", None)


def architecture_of(name: str) -> Architecture:
    """Returns what is known of a CPU by gdb's name or by a triple; raises ValueError for others."""
    if "x86-64" in name or "x86_64" in name:
        return X86_64
    if "aarch64" in name or "arm64" in name:
        return AARCH64
    raise ValueError("etprof knows no registers of " + name)


class Debugger(ABC):
    """What gdb and lldb do alike; one of its kinds knows how."""

    name = ""

    def __init__(self, request: dict[str, Any]) -> None:
        """Keeps what to watch."""
        self.request = request
        self.log = CallLog()
        self.problems: list[str] = []
        self.exit_code: int | None = None
        self.signal: str | None = None
        self._kernels: dict[str, int] = {}
        self._roles: dict[int, Callable[[int], None]] = {}
        self._returns: dict[int, list[tuple[int, int, Action]]] = {}
        self._server: int | None = None

    def start_server(self) -> None:
        """Starts the program that the debugger connects to, if one was named."""
        argv = self.request["server"]
        if argv:
            streams = [
                (os.POSIX_SPAWN_OPEN, number, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                for number, path in ((1, self.request["stdout"]), (2, self.request["stderr"]))
            ]
            self._server = os.posix_spawnp(argv[0], argv, os.environ, file_actions=streams)

    def connect(self, attempt: Action) -> None:
        """Repeats what fails while the server has not opened its address yet."""
        end = time.monotonic() + _LONGEST_START_S
        while True:
            try:
                attempt()
            except Exception:
                has_ended = self._server is None or os.waitpid(self._server, os.WNOHANG)[0] != 0
                if has_ended or time.monotonic() > end:
                    self._server = None if has_ended else self._server
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def await_server(self) -> None:
        """Takes over how that program ended, which says more than the connection does."""
        if self._server is None:
            return
        status = os.waitpid(self._server, 0)[1]
        self._server = None
        if os.WIFEXITED(status):
            self.exit_code, self.signal = os.WEXITSTATUS(status), None
        else:
            self.exit_code, self.signal = None, signal.Signals(os.WTERMSIG(status)).name

    def stop_server(self) -> None:
        """Ends that program where the debugger gave up."""
        if self._server is not None:
            os.kill(self._server, signal.SIGKILL)
            self.await_server()

    def watch(self, name: str, address: int) -> bool:
        """Gives a function its role; returns whether it needs a breakpoint that is not there yet."""
        if address in self._roles:
            return False
        role = self._role_of(name)
        if role is not None:
            self._roles[address] = role
        return role is not None

    def _role_of(self, name: str) -> Callable[[int], None] | None:
        if re.search(self.request["kernels"], name):
            number = self._kernels.setdefault(name, len(self._kernels))
            return lambda _: self.log.count(number, self._sizes())
        for role, begin in (
            ("execute", self.log.begin_execution),
            ("delegate", functools.partial(self.log.begin, "D")),
            ("parallel", functools.partial(self.log.begin, "P")),
        ):
            if re.search(self.request[role], name):
                return functools.partial(self._enter, begin)
        if re.search(self.request["clock"], name):
            return self._read_mach_clock if name.endswith(_MACH_CLOCK) else self._read_clock
        return None

    def _arguments(self) -> tuple[int, ...]:
        return tuple(self.register(name) for name in self.architecture().arguments)

    def _sizes(self) -> tuple[int, ...]:
        """What a call is told apart by: rows of three million calls would be too many to keep."""
        return self._arguments() if self.request["keeps_arguments"] else ()

    def _enter(self, begin: Callable[[int], Action | None], thread: int) -> None:
        leave = begin(thread)
        if leave is not None:
            self._at_return(thread, leave)

    def _at_return(self, thread: int, action: Action) -> None:
        """Has `action` done when the function that has just begun returns."""
        architecture = self.architecture()
        stack = self.register(architecture.stack)
        if architecture.link is None:
            address = int.from_bytes(self.memory(stack, _WORD_BYTES), "little")
            stack += _WORD_BYTES
        else:
            address = self.register(architecture.link)
        pending = self._returns.get(address)
        if pending is None:
            pending = self._returns[address] = []
            if address not in self._roles:
                self.add_breakpoint(address)
        pending.append((thread, stack, action))

    def _read_clock(self, thread: int) -> None:
        clock, address = self._arguments()[:2]
        if clock == _CLOCK_MONOTONIC and self.log.begin_reading(thread):
            self._at_return(thread, lambda: self.log.note_border(self._read_timespec(address)))

    def _read_mach_clock(self, thread: int) -> None:
        """Of macOS: the nanoseconds are what it returns."""
        if self.log.begin_reading(thread):
            result = self.architecture().result
            self._at_return(thread, lambda: self.log.note_border(self.register(result)))

    def _read_timespec(self, address: int) -> int:
        content = self.memory(address, _TIMESPEC_BYTES)
        seconds, ns = (
            int.from_bytes(content[i : i + _WORD_BYTES], "little") for i in (0, _WORD_BYTES)
        )
        return seconds * _NS_PER_SECOND + ns

    def hit(self, address: int, thread: int) -> None:
        """Does what is to be done where a thread stands."""
        pending = self._returns.get(address, [])
        if pending:
            stack = self.register(self.architecture().stack)
            # Functions that end by calling another one return where that one does.
            ended = [call for call in reversed(pending) if call[:2] == (thread, stack)]
            for call in ended:
                pending.remove(call)
                call[2]()
        role = self._roles.get(address)
        if role is not None:
            role(thread)

    def write(self) -> None:
        """Leaves the answer, whole or not at all."""
        answer = {
            "schema_version": 1,
            "debugger": self.name,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "problems": self.problems,
            "functions": sorted(self._kernels, key=self._kernels.__getitem__),
            "spans": [
                span.record()
                for span in self.log.spans
                if span.marks or span.calls or span.is_execution
            ],
        }
        path = Path(self.request["answer"])
        scratch = path.with_suffix(".part")
        scratch.write_text(json.dumps(answer), encoding="utf-8")
        scratch.replace(path)

    @abstractmethod
    def architecture(self) -> Architecture:
        """Returns where functions of the program find their arguments."""

    @abstractmethod
    def register(self, name: str) -> int:
        """Returns a register of the thread that stands at a breakpoint."""

    @abstractmethod
    def memory(self, address: int, size: int) -> bytes:
        """Returns bytes of the program's memory."""

    @abstractmethod
    def add_breakpoint(self, address: int) -> None:
        """Has `hit` called whenever a thread comes to an instruction."""

    @abstractmethod
    def run(self) -> None:
        """Follows the program from its first instruction to its end."""


class Gdb(Debugger):
    """Works inside gdb."""

    def __init__(self, request: dict[str, Any]) -> None:
        """Keeps gdb's module, which exists inside it only."""
        super().__init__(request)
        self._gdb: Any = importlib.import_module("gdb")
        self.name = "gdb " + self._gdb.VERSION
        self._scanned: list[Any] = []
        self._architecture: Architecture | None = None
        self._is_running = True
        self._queued: list[int] = []

    def _do(self, command: str) -> str:
        if "\n" in command:
            raise ValueError("gdb takes no line break: " + repr(command))
        text: str = self._gdb.execute(command, to_string=True)
        return text

    def run(self) -> None:
        """Stops whenever libraries are loaded, to look for functions in them."""
        for setting in (
            "pagination off", "confirm off", "width 0", "print thread-events off",
            "print demangle off", "print asm-demangle off", "stop-on-solib-events 1",
            "breakpoint always-inserted off",
        ):  # fmt: skip
            self._do("set " + setting)
        self._do("handle all nostop noprint pass")
        for name, value in self.request["settings"].items():
            self._do("set " + name + " " + value)
        for name, value in self.request["environment"].items():
            self._do(
                "unset environment " + name if value is None else f"set environment {name}={value}"
            )
        self._gdb.events.exited.connect(self._note_exit)
        self.start_server()
        request = self.request
        address = request["address"]
        if address:
            self.connect(lambda: self._connect_to(address))
        else:
            # What the program prints is kept apart from what gdb says of libraries and signals.
            arguments = [shlex.quote(argument) for argument in request["program"][1:]]
            arguments += [
                ">" + shlex.quote(request["stdout"]),
                "2>" + shlex.quote(request["stderr"]),
            ]
            self._do("set args " + " ".join(arguments))
            self._do("starti")
            for kind in ("fork", "vfork"):
                self._do("catch " + kind)
        while self._is_running and not self.problems:
            self._scan()
            self._set_breakpoints()
            self._do("continue")
        self._note_children()
        if self._is_running:
            self._do("kill")
            self.stop_server()
        self.await_server()

    def _note_children(self) -> None:
        if "catchpoint already hit" in self._do("info breakpoints"):
            self.problems.append(_CHILDREN)

    def _connect_to(self, address: str) -> None:
        self._do("target remote " + address)

    def _note_exit(self, event: object) -> None:
        self._is_running = False
        self.exit_code = getattr(event, "exit_code", None)
        if self.exit_code is None:
            number = self._gdb.convenience_variable("_exitsignal")
            self.signal = None if number is None else signal.Signals(int(number)).name

    def _scan(self) -> None:
        """Looks for functions in files that were loaded since."""
        # A library that is loaded again, at another place, is another one.
        objfiles = [o for o in self._gdb.objfiles() if o not in self._scanned]
        self._scanned += objfiles
        names = [
            objfile.filename for objfile in objfiles if objfile.is_valid() and objfile.filename
        ]
        if not any(self._names_any(name) for name in names):
            return
        for literal in self.request["literals"]:
            for name, address in self._list_functions(literal):
                if self.watch(name, address):
                    self.add_breakpoint(address)

    def _names_any(self, path: str) -> bool:
        """Whether a file has any of the words in it: gdb takes long to list a large one."""
        literals = [literal.encode() for literal in self.request["literals_in_files"]]
        try:
            content = Path(path).read_bytes()
        except OSError:
            return True
        return any(literal in content for literal in literals)

    def _list_functions(self, literal: str) -> list[tuple[str, int]]:
        text = self._do("info functions " + literal)
        listed = [
            (name.split("@@")[0], int(address, 16)) for address, name in _LISTED.findall(text)
        ]
        return [(name, address) for name, address in listed if not name.endswith("@plt")]

    def add_breakpoint(self, address: int) -> None:
        """Has a breakpoint set before the program goes on: none may be made within `stop`."""
        self._queued.append(address)

    def _set_breakpoints(self) -> None:
        debugger = self

        class _Counting(self._gdb.Breakpoint):  # type: ignore[misc,name-defined]
            def stop(self) -> bool:
                """Is called where gdb would stop; returns whether it is to."""
                return debugger._note(int(self.location.lstrip("*"), 16))

        for address in self._queued:
            _Counting("*" + hex(address), internal=True)
        self._queued = []

    def _note(self, address: int) -> bool:
        """Notes what a thread stands at; gdb would print an error, and drop the call."""
        try:
            self.hit(address, self._gdb.selected_thread().num)
        except Exception as error:  # noqa: BLE001 - whatever gdb raises
            self.problems.append("a call was not noted: " + str(error))
            return True
        return bool(self._queued)

    def architecture(self) -> Architecture:
        """Asks the program."""
        if self._architecture is None:
            self._architecture = architecture_of(self._gdb.newest_frame().architecture().name())
        return self._architecture

    def register(self, name: str) -> int:
        """Of the frame that stands at the breakpoint."""
        return int(self._gdb.newest_frame().read_register(name)) % 2**64

    def memory(self, address: int, size: int) -> bytes:
        """Of the selected program."""
        return bytes(self._gdb.selected_inferior().read_memory(address, size))


def end_with_us(process: int) -> int:
    """Has a process ended when this one ends, however: lldb-server leaves it running.

    Returns:
        A descriptor that takes a line when the process has ended by itself.
    """
    reader, writer = os.pipe()
    argv = ["sh", "-c", 'read -r line || kill -9 "$1"', "sh", str(process)]
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    streams = [(os.POSIX_SPAWN_DUP2, reader, 0), *quiet]
    # Out of the group of processes that etprof ends. No fork: lldb has threads, and their locks.
    os.posix_spawn("/bin/sh", argv, {}, file_actions=streams, setpgroup=0)
    os.close(reader)
    return writer


class Lldb(Debugger):
    """Works inside lldb."""

    def __init__(self, request: dict[str, Any], debugger: Any) -> None:  # noqa: ANN401 - lldb's
        """Keeps lldb's module, which exists inside it only, and its debugger."""
        super().__init__(request)
        self._lldb: Any = importlib.import_module("lldb")
        self._debugger = debugger
        self.name = self._lldb.SBDebugger.GetVersionString().splitlines()[0]
        self._target: Any = None
        self._process: Any = None
        self._thread: Any = None
        self._location_count = -1

    def run(self) -> None:
        """Has all functions looked for in whatever is loaded, from the beginning on."""
        lldb, request = self._lldb, self.request
        self._debugger.SetAsync(False)
        for setting in (
            "target.skip-prologue false", "target.preload-symbols true",
            "symbols.enable-external-lookup false",
            # Else a crash comes as an exception of Mach's, again and again.
            "platform.plugin.darwin.ignored-exceptions EXC_BAD_ACCESS|EXC_BAD_INSTRUCTION|EXC_ARITHMETIC",
        ):  # fmt: skip
            self._debugger.HandleCommand("settings set " + setting)
        error = lldb.SBError()
        self._target = self._debugger.CreateTarget(request["program"][0], None, None, True, error)
        if not self._target.IsValid():
            raise RuntimeError(error.GetCString() or "lldb cannot read the program")
        # LLVM's regular expressions are not Python's, so these patterns are literal text, and `watch` decides.
        breakpoints = [
            self._target.BreakpointCreateByRegex(literal)
            for literal in request["literals"]
            if literal
        ]
        self.start_server()
        self._process = self._start(error)
        if error.Fail():
            raise RuntimeError(error.GetCString())
        lifeline = None if request["address"] else end_with_us(self._process.GetProcessID())
        stops = 0
        while self._process.GetState() == lldb.eStateStopped and stops < _MOST_SIGNALS:
            stops += self._look(breakpoints)
            self._process.Continue()
        self._look(breakpoints)
        if self._process.GetState() == lldb.eStateExited:
            self._note_exit(self._process.GetExitStatus())
        else:
            self.problems.append("the program did not end after " + str(stops) + " signals")
            self._process.Kill()
        if lifeline is not None:
            os.write(lifeline, _ENDED)
        self.await_server()

    def _note_exit(self, status: int) -> None:
        """Takes lldb's one number apart: an exit code, or the signal at which the program ended."""
        if self.signal in _CRASHES and signal.Signals[self.signal] == status:
            return
        self.exit_code, self.signal = status, None

    def _start(self, error: Any) -> Any:  # noqa: ANN401 - lldb's
        request = self.request
        address = request["address"]
        if address:
            scheme = "unix-connect://" if address.startswith("/") else "connect://"
            self.connect(lambda: self._connect_to(scheme + address))
            return self._target.GetProcess()
        launch = self._lldb.SBLaunchInfo(request["program"][1:])
        changed = {**os.environ, **request["environment"]}
        variables = [f"{name}={value}" for name, value in changed.items() if value is not None]
        launch.SetEnvironmentEntries(variables, False)
        launch.AddSuppressFileAction(0, True, False)
        launch.SetWorkingDirectory(str(Path.cwd()))
        for number, name in ((1, "stdout"), (2, "stderr")):
            launch.AddOpenFileAction(number, request[name], False, True)
        launch.SetLaunchFlags(self._lldb.eLaunchFlagStopAtEntry)
        return self._target.Launch(launch, error)

    def _connect_to(self, url: str) -> None:
        error = self._lldb.SBError()
        self._target.ConnectRemote(self._debugger.GetListener(), url, "gdb-remote", error)
        if error.Fail():
            raise RuntimeError(error.GetCString())

    def _look(self, breakpoints: list[Any]) -> int:
        """Notes functions that were found, and what every thread stands at.

        Returns:
            0 where a thread stands at a breakpoint, else 1: a signal, or nobody knows what.
        """
        count = sum(breakpoint_.GetNumLocations() for breakpoint_ in breakpoints)
        if count != self._location_count:
            self._location_count = count
            self._give_roles(breakpoints)
        is_hit = False
        for thread in self._process:
            self._thread = thread
            reason = thread.GetStopReason()
            if reason == self._lldb.eStopReasonBreakpoint:
                is_hit = True
                self.hit(thread.GetFrameAtIndex(0).GetPC(), thread.GetThreadID())
            elif reason == self._lldb.eStopReasonSignal:
                number = thread.GetStopReasonDataAtIndex(0)
                known = {known_signal.value: known_signal.name for known_signal in signal.Signals}
                self.signal = known.get(number, "signal " + str(number))
        return 0 if is_hit else 1

    def _give_roles(self, breakpoints: list[Any]) -> None:
        for breakpoint_ in breakpoints:
            for location in breakpoint_.locations:
                name = location.GetAddress().GetSymbol().GetName()
                address = location.GetLoadAddress()
                if name and address != self._lldb.LLDB_INVALID_ADDRESS:
                    self.watch(name, address)
                    # What the literal part of a pattern fits, and the pattern does not.
                    location.SetEnabled(address in self._roles)

    def add_breakpoint(self, address: int) -> None:
        """Sets a breakpoint; `run` goes on after it."""
        self._target.BreakpointCreateByAddress(address)

    def architecture(self) -> Architecture:
        """By the target's triple."""
        return architecture_of(self._target.GetTriple())

    def register(self, name: str) -> int:
        """Of the thread that is looked at."""
        error = self._lldb.SBError()
        value: int = self._thread.GetFrameAtIndex(0).FindRegister(name).GetValueAsUnsigned(error, 0)
        if error.Fail():
            raise RuntimeError("lldb does not know the register " + name)
        return value

    def memory(self, address: int, size: int) -> bytes:
        """Of the process."""
        error = self._lldb.SBError()
        content = self._process.ReadMemory(address, size, error)
        if error.Fail():
            raise RuntimeError(error.GetCString())
        return bytes(content)


def main(debugger: Debugger) -> None:
    """Watches the program, and leaves what was seen whatever happened."""
    try:
        debugger.run()
    except Exception as error:  # noqa: BLE001 - a debugger raises what it likes; etprof says it
        debugger.problems.append(str(error) or type(error).__name__)
        debugger.stop_server()
    debugger.write()


def read_request() -> dict[str, Any]:
    """Returns what to watch."""
    path = Path(os.environ.pop(VARIABLE))
    request: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return request


if "gdb" in sys.modules:
    main(Gdb(read_request()))
    sys.modules["gdb"].execute("quit")
elif "lldb" in sys.modules:
    main(Lldb(read_request(), sys.modules["lldb"].debugger))
