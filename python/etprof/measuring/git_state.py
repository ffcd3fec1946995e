"""The state of the git working tree that a measurement is made in: facts only, or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from etprof.base.errors import TargetError
from etprof.base.process import run_command
from etprof.run.manifest import GitState

_TIMEOUT_S: Final = 10.0
_QUIET: Final = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def read_git_state(folder: Path) -> GitState | None:
    """Returns the state of the tree that `folder` is in; None outside of git, or without git."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    branch = _git(folder, "symbolic-ref", "--short", "--quiet", "HEAD")
    return GitState(
        commit=commit,
        branch=branch or _branch_of_workflow(commit),
        dirty=None if changes is None else bool(changes),
    )


def is_tracked(file: Path) -> bool:
    """Whether git has `file`: one in an environment inside a tree is not of the tree's commit."""
    return bool(_git(file.parent, "ls-files", "--error-unmatch", "--", file.name))


def _branch_of_workflow(commit: str) -> str | None:
    """GitHub checks out a detached commit and names its branch: a pull request's own, or pushed."""
    if os.environ.get("GITHUB_SHA") != commit:
        return None
    return os.environ.get("GITHUB_HEAD_REF") or os.environ.get("GITHUB_REF_NAME") or None


def _git(folder: Path, *words: str) -> str | None:
    """Returns what git prints; None when it refuses, is missing or does not answer in time."""
    try:
        completed = run_command(
            ["git", *words], folder=folder, timeout_s=_TIMEOUT_S, environment=_QUIET
        )
    except TargetError:
        return None
    return completed.stdout.strip() if completed.exit_code == 0 else None
