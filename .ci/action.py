"""The steps of action.yml, for any machine: install, measure, comment, verdict.

Everything comes in as environment variables, never as text of a script: MODEL, PRECISION, MODE,
CONFIG, HISTORY, TARGET_BRANCH, ALLOW_FIRST_RUN, ACCEPT, and what GitHub sets. Needs no package, since
etprof is only installed by the first step.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_MOST_CHARACTERS = 60_000
"""GitHub takes comments of up to 65 536."""
_PAGE = 100
_FIRST_RUN = 9
"""As `etprof history check` ends where there is nothing to compare with yet."""
_PAGE_OF_DOCS = re.compile(r"\bdocs/\w+\.md(?:#\w+)?")
_TRIPLE = "aarch64-linux-gnu"
_COMPILER = f"{_TRIPLE}-g++"


def setting(name: str, default: str = "") -> str:
    """Returns an environment variable, where empty means the default."""
    return os.environ.get(name) or default


def digest() -> str:
    """Tells this check from others of the job; a model's name is anybody's text, this is none."""
    subject = "\n".join(setting(name) for name in ("MODEL", "PRECISION", "MODE", "CONFIG"))
    return hashlib.sha256(subject.encode()).hexdigest()[:16]


def common() -> Path:
    """The folder of this job's files."""
    return Path(setting("RUNNER_TEMP", "."), "etprof")


def folder() -> Path:
    """The folder of this check's files."""
    return common() / digest()


def etprof() -> str:
    """Returns the command: the runner's own where it has one, else that of `install`."""
    return shutil.which("etprof") or str(common() / "venv/bin/etprof")


def install() -> int:
    """Installs this action's own revision; the emulator once per machine."""
    if shutil.which("etprof") is None:
        source = Path(__file__).parents[1]
        environment = common() / "venv"
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin/pip", "install", "-q", source], check=True)
    if setting("MODE", "emulator") == "emulator":
        _install_compiler()
        return subprocess.run([etprof(), "emulator", "setup"], check=False).returncode
    return 0


def _install_compiler() -> None:
    """The one package that setup cannot bring; where it cannot be installed, setup names it."""
    if shutil.which(_COMPILER) or not shutil.which("apt-get"):
        return
    first = [] if os.geteuid() == 0 else ["sudo", "-n"]
    for words in (["update", "-q"], ["install", "-q", "-y", f"g++-{_TRIPLE}"]):
        subprocess.run([*first, "apt-get", *words], check=False)


def measure() -> int:
    """Measures and checks; the exit code is kept for `verdict`, so that later steps still run."""
    # A machine that keeps its folders has the files of the check before, which answer for nothing.
    shutil.rmtree(folder(), ignore_errors=True)
    run = folder() / "run"
    if problem := _mistake():
        print(f"::error::{problem}")
        folder().mkdir(parents=True, exist_ok=True)
        (folder() / "exit_code").write_text("2")
        return 2
    words: list[str | Path] = ["profile", setting("MODEL"), "--target", "emulator", "--out", run]
    if precision := setting("PRECISION"):
        words += ["--dtype", precision]
    if setting("MODE", "emulator") == "device":
        words = ["run", setting("CONFIG"), "--out", run]
    folder().mkdir(parents=True, exist_ok=True)
    code = call(*words) or call("validate", run) or call("report", run) or gate(run)
    (folder() / "exit_code").write_text(str(code))
    check = folder() / "check.md"
    if check.is_file():
        print(check.read_text())
    if output := setting("GITHUB_OUTPUT"):
        with Path(output).open("a") as stream:
            stream.write(f"folder={run}\n")
    return 0


def call(*words: str | Path) -> int:
    """Runs a command of etprof's; returns its exit code."""
    return subprocess.run([etprof(), *words], check=False).returncode


def gate(run: Path) -> int:
    """Compares the run with the target branch's stored ones, or with those before it on its own.

    What a pull request is about has no noise: where each layer ran, and what the program takes.
    """
    history = Path(setting("HISTORY") or common() / "history/etprof_history.sqlite")
    has_history = history.is_file()
    history.parent.mkdir(parents=True, exist_ok=True)
    if code := call("history", "add", run, "--store", history):
        return code
    if reason := setting("ACCEPT"):
        words = ["--why", reason, "--by", setting("GITHUB_ACTOR", "a workflow")]
        if code := call("history", "accept", str(run), "--store", history, *words):
            return code
    target, is_allowed = setting("TARGET_BRANCH"), setting("ALLOW_FIRST_RUN") == "true"
    if target and not has_history:
        print(f"::notice::first run: nothing of {target} is stored yet")
        (folder() / "check.md").write_text(
            f"### etprof: First run\n\nNothing of `{target}` is stored yet: run this action on its pushes.\n"
        )
        return 0 if is_allowed else _FIRST_RUN
    words = ["history", "check", "--store", str(history), "--run", str(run), "--exact-work"]
    words += ["--baseline", f"branch:{target}" if target else "window:7"]
    words += ["--format", "markdown", "--out", str(folder() / "check.md")]
    return call(*words, *(["--allow-first-run"] if is_allowed else []))


def _mistake() -> str | None:
    """What is wrong with the inputs, and the way out."""
    mode = setting("MODE", "emulator")
    if mode not in {"emulator", "device"}:
        return "mode: give emulator or device"
    if mode == "emulator" and setting("CONFIG"):
        return "config: mode emulator takes none; leave it out, or give `mode: device`"
    if mode == "emulator":
        return None if setting("MODEL") else "model: give the model that is to be measured"
    if not setting("CONFIG"):
        return "config: mode device needs one; it names the device and what to measure"
    given = [name for name in ("MODEL", "PRECISION") if setting(name)]
    if given:
        return f"{given[0].lower()}: mode device takes it from the config; leave it out here"
    return None


def comment() -> int:
    """Posts the report's first part on the pull request, or updates what it posted before.

    A pull request of a fork has a token that may not write: that is told, and fails nothing.
    """
    try:
        _post(_body())
    except urllib.error.HTTPError as error:
        print(
            f"::warning::no comment: GitHub answers {error.code}; give the job `pull-requests: write`"
        )
    # No answer at all, of which URLError is one kind, one that ends early, or one that is no JSON.
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"::warning::no comment: GitHub does not answer as it should ({error})")
    return 0


def _mark() -> str:
    """What this check's comment begins with."""
    return f"<!-- etprof {digest()} -->"


def _body() -> str:
    """The gate's answer and the verdict; the report's first part is folded away."""
    check, report = folder() / "check.md", folder() / "run/report.md"
    code = setting_of(folder() / "exit_code")
    verdict = "passed" if code == "0" else f"failed with exit code {code}"
    lines = [_mark()]
    if check.is_file():
        lines += [check.read_text().strip(), ""]
    elif not report.is_file():
        lines += ["etprof could not measure; see the job's log.", ""]
    if report.is_file():
        lines += ["<details><summary>What this run says</summary>", ""]
        lines += [_with_links(_first_part(report.read_text())), "", "</details>", ""]
    lines.append(f"*This check {verdict}; the whole report is an artifact of the job.*")
    return "\n".join(lines)


def _with_links(text: str) -> str:
    """Turns pages of etprof's documentation into links to the action's own repository."""
    repository, revision = setting("ACTION_REPOSITORY"), setting("ACTION_REF")
    if not (repository and revision):
        return text
    pages = f"{setting('GITHUB_SERVER_URL', 'https://github.com')}/{repository}/blob/{revision}"
    return _PAGE_OF_DOCS.sub(rf"[\g<0>]({pages}/\g<0>)", text)


def _post(body: str) -> None:
    place = f"/repos/{setting('GITHUB_REPOSITORY')}/issues"
    own = f"{place}/{int(setting('PULL_REQUEST'))}/comments"
    for page in range(1, 11):
        found = ask("GET", f"{own}?per_page={_PAGE}&page={page}")
        for each in found:
            # Anybody can write the mark; only what a workflow posted is ours to change.
            is_ours = (each.get("user") or {}).get("type") == "Bot"
            if is_ours and str(each["body"]).startswith(_mark()):
                ask("PATCH", f"{place}/comments/{int(each['id'])}", {"body": body})
                return
        if len(found) < _PAGE:
            break
    ask("POST", own, {"body": body})


def setting_of(path: Path) -> str:
    """Returns what a step before wrote; `unknown` when it did not get so far."""
    return path.read_text() if path.is_file() else "unknown"


def _first_part(text: str) -> str:
    """Headline, figures and findings: what stands before the third section, whole lines."""
    lines = text.splitlines()
    headings = [number for number, line in enumerate(lines) if line.startswith("## ")]
    kept, length = [], 0
    for line in lines[: headings[1] if len(headings) > 1 else None]:
        length += len(line) + 1
        if length > _MOST_CHARACTERS:
            break
        kept.append(line)
    return "\n".join(kept)


def ask(method: str, path: str, content: dict[str, str] | None = None) -> Any:  # noqa: ANN401
    """Asks GitHub's API and returns its answer."""
    request = urllib.request.Request(  # noqa: S310 - the runner's own variable says where
        setting("GITHUB_API_URL", "https://api.github.com") + path,
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Authorization": f"Bearer {setting('GITHUB_TOKEN')}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
        return json.load(answer)


def verdict() -> int:
    """Ends with the exit code of `measure`; what never ran has failed."""
    code = setting_of(folder() / "exit_code")
    return int(code) if code.isdecimal() else 1


if __name__ == "__main__":
    sys.exit(
        {"install": install, "measure": measure, "comment": comment, "verdict": verdict}[
            sys.argv[1]
        ]()
    )
