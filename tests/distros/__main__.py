"""Runs README's commands in a fresh root of each distribution: `nox -s distros`.

Needs root, debootstrap and the machine's own apt sources, whose archive the packages come from. A
root is made once and kept below build/distros; each try has a fresh copy of it, with the packages
that README names and a clone of what is committed here. README's lines are run one after the other
by an ordinary user, as typed into one terminal, with pip's configuration of this machine. One line
a step; the logs stay. Exit code 1 when a step fails, or when no distribution can be had.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from etprof.base.errors import BuildError
from etprof.base.process import run_command
from etprof.targets.emulator.apt import PackageArchive, PackageSource, find_archive
from tests.distros.pip_settings import find_pip_settings
from tests.distros.readme import Step, read_steps
from tests.distros.root import HOME, USER_ID, Bind, Root, remove_tree, run_alone

ROOT: Final = Path(__file__).parents[2]
TREE: Final = HOME / "etprof"
TERMINAL: Final = """
cd ~/etprof
[ ! -e ~/.terminal ] || . ~/.terminal
cd "$PWD"
eval "$0"
code=$?
export -p >~/.terminal
exit $code
"""
"""Types one line into a terminal that keeps its folder and variables."""
_NETWORK_OPTION: Final = re.compile(r"^Acquire::(https?|Check|Retries|Force).*", re.MULTILINE)
_LINES_OF_A_LOG: Final = 20


@dataclass(frozen=True)
class Distribution:
    """A release, how debootstrap makes it, and where Debian's or Ubuntu's compilers lie."""

    title: str
    family: str
    """As in /etc/os-release: `debian` or `ubuntu`."""
    suite: str
    components: str
    script: str
    """Of debootstrap, by the name that all of the family's releases share."""

    def why_not(self, archive: PackageArchive | None) -> str | None:
        """Returns why this machine's archive does not have it; None when it has."""
        if archive is None:
            return "there are no apt sources of a Debian or Ubuntu release here"
        if archive.distribution != self.family:
            return f"the apt sources here are {archive.distribution.title()}'s"
        with tempfile.TemporaryDirectory() as folder:
            try:
                PackageSource(archive, self.suite, Path(folder)).update()
            except BuildError as error:
                return str(error)
        return None


DISTRIBUTIONS: Final = (
    Distribution("Debian 13", "debian", "trixie", "main", "sid"),
    Distribution("Ubuntu 26.04 LTS", "ubuntu", "resolute", "main,universe", "gutsy"),
)


class StepFailedError(Exception):
    """A step did not work; it was told."""


@dataclass(frozen=True)
class Trial:
    """One distribution that is tried in a folder."""

    distribution: Distribution
    archive: PackageArchive
    folder: Path
    base: Path

    @contextmanager
    def fresh_root(self) -> Iterator[Root]:
        """Makes what is missing and yields a copy of the base."""
        if not self.base.exists():
            self.step(f"debootstrap {self.distribution.suite}", self.make_base)
        root = Root(self.folder / "root")
        self.step("copy of the root", partial(self.copy_base, root))
        yield root

    def step(self, name: str, do: Callable[[Path], int]) -> None:
        """Does one step, with a log to write, and prints its line; raises StepFailedError."""
        number = len(list(self.logs.iterdir())) + 1
        log = self.logs / f"{number:02}.log"
        log.touch()
        begun = time.monotonic()
        code = do(log)
        verdict = f"FAILED, exit code {code}" if code else "ok"
        print(f"  {time.monotonic() - begun:6.0f} s  {verdict:3}  {name}", flush=True)
        if code:
            for line in log.read_text(errors="replace").splitlines()[-_LINES_OF_A_LOG:]:
                print(f"            {line[:200]}")
            print(f"            all of it: {log}", flush=True)
            raise StepFailedError

    @property
    def logs(self) -> Path:
        """The folder with a file a step."""
        return self.folder / "logs"

    def make_base(self, log: Path) -> int:
        """Runs debootstrap; what it did not finish is not taken for a root later."""
        partial = self.base.with_name(f"{self.base.name}.partial")
        remove_tree(partial)
        partial.mkdir(parents=True)
        release = self.distribution
        words: list[str | Path] = [
            *("debootstrap", "--variant=minbase", "--force-check-gpg"),
            f"--components={release.components}",
        ]
        if self.archive.keyring:
            words.append(f"--keyring={self.archive.keyring}")
        script = Path("/usr/share/debootstrap/scripts", release.script)
        try:
            # debootstrap 1.0.128 takes a path with blanks for several words.
            with tempfile.TemporaryDirectory(dir="/tmp") as folder:
                target = Path(folder, "root")
                target.symlink_to(partial)
                code = run_alone([*words, release.suite, target, self.archive.uri, script], log)
            details = partial / "debootstrap/debootstrap.log"
            if code == 0:
                partial.rename(self.base)
            elif details.exists():
                with log.open("a") as text:
                    text.write(details.read_text(errors="replace"))
        finally:
            remove_tree(partial)
        return code

    def copy_base(self, root: Root, log: Path) -> int:
        """Copies the base, and adds what a machine that is in use has: a user, a network."""
        remove_tree(root.folder)
        copied = run_command(["cp", "-a", "--reflink=auto", self.base, root.folder])
        if copied.exit_code:
            log.write_text(copied.stderr)
            return copied.exit_code
        for name in ("resolv.conf", "hosts"):
            shutil.copy(Path("/etc", name), root.path(Path("/etc", name)))
        network = run_command(["apt-config", "dump", "Acquire"]).stdout
        options = [match[0] for match in _NETWORK_OPTION.finditer(network)]
        root.path(Path("/etc/apt/apt.conf.d/99outside")).write_text("\n".join([*options, ""]))
        words = ["useradd", "--create-home", f"--uid={USER_ID}", "--shell=/bin/bash", HOME.name]
        return root.run(words, log, as_root=True)

    def bring_tree(self, root: Root, log: Path) -> int:
        """Clones what is committed, and brings pip's configuration and a cache for downloads."""
        tree = root.path(TREE)
        done = run_command(["git", "clone", "--quiet", "--no-hardlinks", ROOT, tree])
        log.write_text(done.stderr)
        settings = find_pip_settings()
        root.environment |= settings.environment
        cache = self.folder.parent / "pip-cache"
        cache.mkdir(exist_ok=True)
        os.chown(cache, USER_ID, USER_ID)
        root.add_bind(Bind(cache, HOME / ".cache/pip", is_writable=True))
        for path in (*settings.files, *settings.paths):
            root.add_bind(Bind(path, path))
        for path in settings.user_files:
            is_at_home = path.is_relative_to(Path.home())
            inside = path.relative_to(Path.home()) if is_at_home else Path(".config/pip/pip.conf")
            copy = root.path(HOME / inside)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        owned = run_command(["chown", "-R", f"{USER_ID}:{USER_ID}", root.path(HOME)])
        return done.exit_code or owned.exit_code

    def install(self, root: Root, packages: str, log: Path) -> int:
        """Installs packages as README says, without questions."""
        line = f"apt-get update -q && apt-get install -q -y {packages}"
        return root.run(["sh", "-c", line], log, as_root=True)

    def describe(self, root: Root) -> None:
        """Prints which versions were tried."""
        log = self.logs / "versions.log"
        line = (
            ". /etc/os-release; echo $PRETTY_NAME; python3 --version; g++ --version | head -1; "
            "command -v cmake >/dev/null && cmake --version | head -1 || echo no cmake of its own"
        )
        root.run(["sh", "-c", line], log)
        print(f"  {'; '.join(log.read_text().splitlines())}", flush=True)


def does_readme_hold(trial: Trial, *, more: str, left_out: list[str]) -> bool:
    """Does what README says, and says whether all of it worked."""
    begun = time.monotonic()
    try:
        follow_readme(trial, more=more, left_out=left_out)
    except StepFailedError:
        return False
    rest = ", but for what was left out" if left_out else ""
    print(f"  {time.monotonic() - begun:6.0f} s  in all; README holds{rest}", flush=True)
    return True


def follow_readme(trial: Trial, *, more: str, left_out: list[str]) -> None:
    """Does what README says; raises StepFailedError for what does not work."""
    with trial.fresh_root() as root:
        trial.step(f"clone of {describe_commit()}", partial(trial.bring_tree, root))
        for step in read_steps(root.path(TREE / "README.md").read_text("utf-8")):
            if any(text in step.text for text in left_out):
                print(f"        -     left out  {step}", flush=True)
                continue
            chosen = replace(step, text=f"{step.text} {more}".strip()) if step.is_packages else step
            trial.step(str(chosen), partial(do_step, trial, root, chosen))
            more = "" if step.is_packages else more
        trial.describe(root)


def do_step(trial: Trial, root: Root, step: Step, log: Path) -> int:
    """Does one step of README; returns its exit code."""
    if step.is_packages:
        return trial.install(root, step.text, log)
    return root.run(["bash", "-c", TERMINAL, step.text], log)


def describe_commit() -> str:
    """Names the commit, and says what of this folder is not in it."""
    commit = run_command(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]).stdout.strip()
    changed = run_command(["git", "-C", ROOT, "status", "--porcelain"]).stdout
    return f"{commit}, without what is not committed" if changed else commit


def try_one(
    distribution: Distribution, archive: PackageArchive | None, arguments: argparse.Namespace
) -> bool | None:
    """Tries one; returns whether README holds there, None when it cannot be had."""
    name = f"{distribution.title} ({distribution.suite})"
    if (reason := distribution.why_not(archive)) or archive is None:
        print(f"{name}: cannot be had: {reason}", flush=True)
        return None
    print(name, flush=True)
    folder = arguments.folder / distribution.suite
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"{folder} is in use by another run; name another folder with --folder")
        trial = Trial(distribution, archive, folder, arguments.root or folder / "base")
        shutil.rmtree(trial.logs, ignore_errors=True)
        trial.logs.mkdir()
        try:
            holds = does_readme_hold(trial, more=" ".join(arguments.also), left_out=arguments.skip)
        except KeyboardInterrupt:
            # Gigabytes of small files: some minutes, and whoever interrupts waits for none.
            print(f"interrupted; {folder / 'root'} stays until the next run", file=sys.stderr)
            raise
        if not arguments.keep:
            remove_tree(folder / "root")
        return holds


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="nox -s distros --", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    suites = [distribution.suite for distribution in DISTRIBUTIONS]
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(suites)}")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/distros",
                        help="roots, logs and pip's downloads (default: build/distros)")  # fmt: skip
    parser.add_argument("--root", type=Path, help="a root to copy, in place of the one there")
    parser.add_argument("--skip", action="append", default=[], metavar="TEXT",
                        help="leave out README's lines that contain it")  # fmt: skip
    parser.add_argument("--also", nargs="+", default=[], metavar="PACKAGE",
                        help="install these too, such as cmake ninja-build")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="leave the root as it is at the end")
    arguments = parser.parse_args()
    if unknown := set(arguments.suites) - set(suites):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(suites)}")
    arguments.folder = arguments.folder.resolve()
    if arguments.root is not None:
        arguments.root = arguments.root.resolve()
    return arguments


def main() -> int:
    """Tries all, or those that are named."""
    arguments = parse_arguments()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        sys.exit("this needs root and debootstrap (apt install debootstrap)")
    archive = find_archive()
    verdicts = [
        try_one(distribution, archive, arguments)
        for distribution in DISTRIBUTIONS
        if not arguments.suites or distribution.suite in arguments.suites
    ]
    tried = [verdict for verdict in verdicts if verdict is not None]
    return 0 if tried and all(tried) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
