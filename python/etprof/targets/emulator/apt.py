"""Fetches Debian and Ubuntu packages without root: private state, the machine's own archive.

apt verifies the archive's signature and each package's hash. Nothing is installed: packages are
unpacked into a folder.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import BuildError
from etprof.base.process import run_command

if TYPE_CHECKING:
    from etprof.base.process import Completed

_TIMEOUT_S = 900


@dataclass(frozen=True)
class PackageArchive:
    """Where this machine gets its packages from."""

    distribution: str
    """`debian` or `ubuntu`."""
    codename: str
    uri: str

    @property
    def keyring(self) -> Path | None:
        """The distribution's own keys; without that file, apt takes its trusted ones."""
        keyring = Path(f"/usr/share/keyrings/{self.distribution}-archive-keyring.gpg")
        return keyring if keyring.is_file() else None


@dataclass(frozen=True)
class Package:
    """A package as it was fetched."""

    name: str
    version: str
    sha256: str
    file: Path


def require_archive(contents: str, way_out: str) -> PackageArchive:
    """Returns the archive to fetch `contents` from; raises BuildError with the way out without one."""
    if (archive := find_archive()) is not None:
        return archive
    raise BuildError(f"this is not Debian or Ubuntu, so {contents} cannot be fetched: {way_out}")


def find_archive() -> PackageArchive | None:
    """Returns the archive of this machine's release; None when it is not Debian or Ubuntu."""
    release = _os_release()
    codename = release.get("VERSION_CODENAME", "")
    if not codename or any(shutil.which(tool) is None for tool in ("apt-get", "dpkg-deb")):
        return None
    form = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    listed = run_command(["apt-get", "indextargets", "--format", form], timeout_s=60)
    for line in listed.stdout.splitlines():
        uri, suite, component = (*line.split("|"), "", "")[:3]
        if suite == codename and component == "main":
            return PackageArchive(release.get("ID", "debian"), codename, uri)
    return None


def _os_release() -> dict[str, str]:
    """Reads /etc/os-release."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key: value.strip("\"'") for key, value in pairs}


class PackageSource:
    """One suite of an archive, with apt's state in a folder of its own."""

    def __init__(self, archive: PackageArchive, suite: str, folder: Path) -> None:
        self.archive = archive
        self.suite = suite
        self._folder = folder
        for subfolder in ("sources", "state/lists/partial", "cache/archives/partial", "packages"):
            (folder / subfolder).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (folder / "sources" / "etprof.sources").write_text(_source_entry(archive, suite))

    def update(self) -> None:
        """Fetches the signed list of packages; raises BuildError when there is no such suite."""
        done = self._apt("apt-get", "update", "--error-on=any")
        if done.exit_code != 0:
            raise BuildError(
                f"{self.archive.uri} gave no signed package list of {self.suite}: "
                f"{_last_line(done)}; check the network and the apt sources"
            )

    def find_version(self, package: str) -> str | None:
        """Returns the version that the suite has."""
        return self._field(package, "Version")

    def fetch(self, package: str) -> Package:
        """Downloads one package; apt checks its hash. Raises BuildError when that fails."""
        folder = self._folder / "packages"
        before = set(folder.iterdir())
        done = self._apt("apt-get", "download", package, folder=folder)
        new = set(folder.iterdir()) - before
        if done.exit_code != 0 or len(new) != 1:
            msg = f"{package} could not be fetched from {self.archive.uri}: {_last_line(done)}"
            raise BuildError(msg)
        version = self._field(package, "Version") or "?"
        return Package(package, version, self._field(package, "SHA256") or "", new.pop())

    def _field(self, package: str, name: str) -> str | None:
        output = self._apt("apt-cache", "show", "--no-all-versions", package).stdout
        match = re.search(rf"^{name}: (\S+)", output, re.MULTILINE)
        return match[1] if match else None

    def _apt(self, *arguments: str, folder: Path | None = None) -> Completed:
        """Runs apt with nothing of the system's state but its configuration and keys."""
        options = {
            "Dir::Etc::SourceList": "/dev/null",
            "Dir::Etc::SourceParts": self._folder / "sources",
            "Dir::State": self._folder / "state",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder / "cache",
            "APT::Sandbox::User": "root",
            "APT::Get::List-Cleanup": "false",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        flags = [text for key, value in options.items() for text in ("-o", f"{key}={value}")]
        command = [arguments[0], *flags, *arguments[1:]]
        return run_command(
            command, timeout_s=_TIMEOUT_S, folder=folder, environment={"LC_ALL": "C"}
        )


def _source_entry(archive: PackageArchive, suite: str) -> str:
    components = "main universe" if archive.distribution == "ubuntu" else "main"
    lines = ["Types: deb", f"URIs: {archive.uri}", f"Suites: {suite}", f"Components: {components}"]
    if archive.keyring:
        lines.append(f"Signed-By: {archive.keyring}")
    return "\n".join(lines) + "\n"


def _last_line(done: Completed) -> str:
    lines = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:", "Err"))]
    return lines[-1] if lines else f"exit code {done.exit_code}"


def unpack(package: Package, folder: Path) -> None:
    """Unpacks a package's files below `folder`; raises BuildError for a damaged one."""
    done = run_command(["dpkg-deb", "--extract", package.file, folder], timeout_s=_TIMEOUT_S)
    if done.exit_code != 0:
        raise BuildError(f"{package.file.name} cannot be unpacked: {done.stderr.strip()}")
