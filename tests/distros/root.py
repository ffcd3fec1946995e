"""A root folder of another distribution, and programs that run inside it.

Whatever runs inside has mounts and process numbers of its own: with its first process all others
end and all mounts are gone, however this process ends.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from etprof.base.process import run_command

USER_ID: Final = 1000
HOME: Final = Path("/home/newcomer")
_NAMESPACES: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL")
# With pivot_root in place of chroot alone, users inside may make namespaces, as on a machine.
# The exit in the last line keeps the shell as first process: as another user, chroot in its stead
# would lose what ends it with `unshare`.
_ENTER: Final = """
set -e
root=$1 log=$2 user=$3
shift 3
exec 3>"$log"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
    mount --rbind "$2" "$root$3"
    [ "$1" = rw ] || mount -o remount,bind,ro "$root$3"
    shift 3
done
shift
cd "$root"
# `su` leaves root the PATH of a user, who may have no programs of administrators there.
PATH=$PATH:/usr/sbin:/sbin
pivot_root . .
umount -l .
chroot --userspec="$user" --groups= / "$@" >&3 2>&1 </dev/null
exit $?
"""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Bind:
    """A file or folder of this machine that is seen inside."""

    source: Path
    inside: Path
    is_writable: bool = False


@dataclass
class Root:
    """A root folder that is complete."""

    folder: Path
    binds: list[Bind] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def path(self, inside: Path) -> Path:
        """Returns where a path inside lies outside."""
        return self.folder / inside.relative_to("/")

    def add_bind(self, bind: Bind) -> None:
        """Shows a path of this machine inside, from the next program on."""
        spot = self.path(bind.inside)
        if bind.source.is_dir():
            spot.mkdir(parents=True, exist_ok=True)
        else:
            spot.parent.mkdir(parents=True, exist_ok=True)
            spot.touch()
        self.binds.append(bind)

    def run(self, words: Sequence[str], log: Path, *, as_root: bool = False) -> int:
        """Runs a program inside; returns its exit code. Root sees nothing of this machine's."""
        user = "0:0" if as_root else f"{USER_ID}:{USER_ID}"
        binds = [] if as_root else self.binds
        mounts = [
            word
            for bind in binds
            for word in ("rw" if bind.is_writable else "ro", str(bind.source), str(bind.inside))
        ]
        inside = ["env", "-i", *self._variables(as_root=as_root), *words]
        enter = ["sh", "-c", _ENTER, "enter", str(self.folder), str(log), user, *mounts, "--"]
        done = run_command([*_NAMESPACES, *enter, *inside])
        if done.stderr:
            # Of the mounts; what ran inside has written into the log.
            with log.open("a") as text:
                text.write(done.stderr)
        return done.exit_code

    def _variables(self, *, as_root: bool) -> list[str]:
        common = {"LANG": "C.UTF-8"}
        variables: Mapping[str, str] = (
            {
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "DEBIAN_FRONTEND": "noninteractive",
            }
            if as_root
            else {
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(HOME),
                "USER": HOME.name,
                "LOGNAME": HOME.name,
                **self.environment,
            }
        )
        return [f"{name}={value}" for name, value in {**common, **variables}.items()]


def run_alone(words: Sequence[str | Path], log: Path) -> int:
    """Runs a program outside with mounts of its own, which end with it; returns its exit code."""
    redirected = ["sh", "-c", 'log=$1; shift; "$@" >"$log" 2>&1; exit $?', "alone", str(log)]
    return run_command([*_NAMESPACES, *redirected, *words]).exit_code


def mounts_below(folder: Path) -> list[Path]:
    """Returns the places below a folder where this process sees something mounted."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [_ESCAPED.sub(lambda m: chr(int(m[1], 8)), line.split()[4]) for line in lines]
    return [Path(place) for place in places if Path(place).is_relative_to(folder)]


def remove_tree(folder: Path) -> None:
    """Removes a root folder; raises OSError rather than to remove what is mounted in it."""
    if mounted := mounts_below(folder):
        raise OSError(f"{mounted[0]} is mounted; unmount it, and remove {folder} by hand")
    if folder.exists():
        shutil.rmtree(folder)
