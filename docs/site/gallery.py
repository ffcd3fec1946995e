"""Makes a gallery of real reports: each is what one command of etprof writes, on this machine.

usage: python -m docs.site.gallery FOLDER [--without-emulator]

`python -m docs.site.build --gallery FOLDER` puts them into the site. The first command fetches and
builds the emulator where it is not there yet; --without-emulator leaves out what needs it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """A report, the command that wrote it, and what it shows."""

    name: str
    command: str
    made: str
    """What the command writes that is shown: a page, or a folder of pages."""
    says: str

    @property
    def page(self) -> str:
        """Its place in the gallery."""
        return f"{self.name}.html" if self.made.endswith(".html") else f"{self.name}/index.html"

    @property
    def is_emulated(self) -> bool:
        """Whether it needs the emulator."""
        return "emulator" in self.command


ENTRIES = (
    Entry(
        "this_computer",
        "etprof profile toy_cnn --out this_computer",
        "this_computer/report.html",
        "A small network on the machine that built this site: where its time goes.",
    ),
    Entry(
        "microkernels",
        "etprof profile toy_cnn --dtype fp16 --target emulator --out microkernels",
        "microkernels/report.html",
        "The same network under emulation: which SME2 microkernels ran, how often, and why not all.",
    ),
    Entry(
        "two_programs",
        "etprof profile toy_cnn:fp16 --against toy_cnn:int8 --out two_programs",
        "two_programs/report.html",
        "Two precisions in turns: what quantisation changed, operator by operator.",
    ),
    Entry(
        "numerics",
        "etprof numerics toy_cnn --dtype int8 --out numerics",
        "numerics/numerics.html",
        "Every operator's value beside the eager model's.",
    ),
    Entry(
        "optimize",
        "etprof optimize toy_cnn --dtype fp16 --outdir optimize",
        "optimize/optimize.html",
        "A search over rewrites, each held to the outputs.",
    ),
    Entry(
        "dashboard",
        "etprof history add this_computer two_programs --store history.sqlite && "
        "etprof dashboard --store history.sqlite --export dashboard",
        "dashboard",
        "The pages that a history of runs has.",
    ),
)


def make(folder: Path, *, with_emulator: bool) -> None:
    """Runs the commands in folder `runs` of `folder`, and keeps what they wrote beside it."""
    work = folder / "runs"
    shutil.rmtree(folder, ignore_errors=True)
    work.mkdir(parents=True)
    if with_emulator:
        _run("etprof emulator setup", work)
    for entry in ENTRIES:
        if entry.is_emulated and not with_emulator:
            continue
        _run(entry.command, work)
        made, kept = work / entry.made, folder / entry.page
        if made.is_dir():
            shutil.copytree(made, kept.parent)
        else:
            shutil.copyfile(made, kept)
    shutil.rmtree(work)


def _run(commands: str, folder: Path) -> None:
    for command in commands.split(" && "):
        print(f"$ {command}", flush=True)
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            sys.exit(f"`{command}` ended with exit code {done.returncode}")


def gallery_page(folder: Path) -> str:
    """Returns the page that shows what is in `folder`."""
    parts = ["# Gallery", "Real reports, each made by the one command above it."]
    for entry in ENTRIES:
        if (folder / entry.page).is_file():
            link = f"<a href='gallery/{entry.page}'>Open it</a>"
            commands = entry.command.replace(" && ", "\n")
            parts += [f"## {entry.says.partition(':')[0].rstrip('.')}", entry.says]
            parts += [f"```sh\n{commands}\n```", link]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Makes the gallery."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without-emulator", action="store_true")
    arguments = parser.parse_args()
    # Reports are as wide as a page, whatever terminal this runs in.
    os.environ.setdefault("COLUMNS", "100")
    make(arguments.folder.resolve(), with_emulator=not arguments.without_emulator)


if __name__ == "__main__":
    main()
