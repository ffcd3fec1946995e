"""The state of the git working tree that a measurement is made in: facts only, or nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from etprof.base.errors import TargetError
from etprof.base.process import run_command
from etprof.run.manifest import GitState

_TIMEOUT_S: Final = 10.0
_QUIET: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
    # A tree may come from a stranger: nothing that its configuration names is fetched.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}
_OWN_FILTER: Final = re.compile(r"^(?:local|worktree)\t", re.MULTILINE)
"""Of what git's configuration says in the tree itself; the user's own filters are the user's."""


def read_git_state(folder: Path) -> GitState | None:
    """Returns the state of the tree that `folder` is in; None outside of git, or without git."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    changes = _changes(folder)
    branch = _git(folder, "symbolic-ref", "--short", "--quiet", "HEAD")
    return GitState(
        commit=commit,
        branch=branch or _branch_of_workflow(commit),
        dirty=None if changes is None else bool(changes),
    )


def _changes(folder: Path) -> str | None:
    """Lists what differs from the commit; None where telling it would run the tree's programs.

    Those are filters of its own configuration. What is changed inside submodules is not looked at.
    """
    pattern = r"^filter\..*\.(clean|process)$"
    filters = _git(
        folder, "config", "--includes", "--show-scope", "--name-only", "--get-regexp", pattern
    )
    if filters is not None and _OWN_FILTER.search(filters):
        return None
    flags = ("--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    return _git(folder, "status", *flags)


def is_tracked(file: Path) -> bool:
    """Whether git has `file`: one in an environment inside a tree is not of the tree's commit."""
    return bool(_git(file.parent, "ls-files", "--error-unmatch", "--", file.name))


def _branch_of_workflow(commit: str) -> str | None:
    """GitHub checks out a detached commit and names its branch: a pull request's own, or pushed."""
    if os.environ.get("GITHUB_SHA") != commit:
        return None
    return os.environ.get("GITHUB_HEAD_REF") or os.environ.get("GITHUB_REF_NAME") or None


def _git(folder: Path, *arguments: str) -> str | None:
    """Returns what git prints; None when it refuses, is missing or does not answer in time."""
    try:
        completed = run_command(
            # The tree's own program that says what has changed would be run.
            ["git", "-c", "core.fsmonitor=false", *arguments],
            folder=folder,
            timeout_s=_TIMEOUT_S,
            environment=_QUIET,
        )
    except TargetError:
        return None
    return completed.stdout.strip() if completed.exit_code == 0 else None
