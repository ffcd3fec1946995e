"""Writes what Python itself is asked to run, load and unpickle; found by PYTHONPATH alone."""

import os
import sys

_PATH = os.environ["ETPROF_SANDBOX_EVENTS"]
_KINDS = {
    "os.system": "exec",
    "os.exec": "exec",
    "os.posix_spawn": "exec",
    "subprocess.Popen": "exec",
    "socket.connect": "connect",
    "socket.sendto": "connect",
    "ctypes.dlopen": "load",
    "sqlite3.enable_load_extension": "load",
    "sqlite3.load_extension": "load",
    "pickle.find_class": "unpickle",
}


def _note(event: str, words: tuple[object, ...]) -> None:
    if event in _KINDS:
        shown = words[1] if event == "socket.connect" else ".".join(map(str, words[:2]))
        if event in {"ctypes.dlopen", "subprocess.Popen", "os.posix_spawn"}:
            shown = os.fsdecode(words[0]) if isinstance(words[0], (str, bytes)) else words[0]
        line = f"{_KINDS[event]}\t{shown}\n".encode("utf-8", "backslashreplace")
        descriptor = os.open(_PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(descriptor, line)
        os.close(descriptor)


sys.addaudithook(_note)
