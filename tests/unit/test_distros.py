"""What `nox -s distros` does, as far as it takes no other distribution."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from etprof.base.errors import BuildError
from etprof.targets.emulator import build
from etprof.targets.emulator.apt import PackageArchive
from tests.distros import __main__ as distros
from tests.distros.pip_settings import CERTIFICATES, read_pip_settings
from tests.distros.readme import SECTIONS, Step, read_steps
from tests.distros.root import HOME, USER_ID, Bind, Root, mounts_below, remove_tree

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_every_command_of_the_two_sections_is_a_step() -> None:
    texts = [step.text for step in read_steps(README) if not step.is_packages]
    assert any("pip install . &&" in text for text in texts)
    assert any(text.endswith(".venv/bin/nox") for text in texts)
    assert ".venv/bin/etprof emulator setup" in texts
    shown = README[: README.index("## What it does")]
    (blocks,) = [re.findall(r"^```sh\n(.*?)^```", shown, re.MULTILINE | re.DOTALL)]
    assert len(texts) == sum(len(block.splitlines()) for block in blocks)


def test_packages_come_before_what_needs_them() -> None:
    """`emulator setup` ended for want of a compiler that README did not name on Debian 12 and 13."""
    steps = list(read_steps(README))
    setup = next(i for i, step in enumerate(steps) if "emulator setup" in step.text)
    assert steps[0].is_packages
    packages = " ".join(step.text for step in steps[:setup] if step.is_packages).split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.which", lambda _: None)
        patch.setattr(build, "is_native", lambda: False)
        with pytest.raises(BuildError) as caught:
            build.check_compiler()
    (compiler,) = re.findall(r"apt install (\S+?)`", str(caught.value))
    assert compiler in packages


def test_lines_are_whole_and_without_comments() -> None:
    page = (
        "## Run it\n\nFirst `apt install a b`, then:\n\n```sh\nx 1 \\\n  2   # once\n\ny '#3'\n```\n"
        "```\noutput\n```\n## Test it\n```sh\nz\n```\n## Over time\n```sh\nnever\n```\n"
    )
    steps = list(read_steps(page))
    assert steps[0] == Step("a b", is_packages=True)
    assert [" ".join(step.text.split()) for step in steps[1:]] == ["x 1 2", "y '#3'", "z"]
    assert str(steps[0]) == "apt install a b"


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_without_commands_is_no_success(title: str) -> None:
    with pytest.raises(ValueError, match=f"README has no command under '{title}'"):
        list(read_steps(README.replace(f"## {title}\n", "## Otherwise\n")))


def test_pip_works_inside_as_outside(tmp_path: Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "index" / "simple"
    wheels.mkdir()
    (wheels / "constraints.txt").touch()
    index.mkdir(parents=True)
    shown = (
        f"env:\nglobal:\n  /etc/xdg/pip/pip.conf, exists: False\n  /etc/pip.conf, exists: True\n"
        f"    global.timeout: 180\nsite:\n  /usr/pip.conf, exists: False\nuser:\n"
        f"  /home/someone/.config/pip/pip.conf, exists: True\n"
        f"    global.extra-index-url: file://{index} https://index.invalid/simple\n"
    )
    variables = {
        "PIP_FIND_LINKS": str(wheels), "PIP_CACHE_DIR": "/x", "https_proxy": "p", "PATH": "/bin",
        "SSL_CERT_DIR": "/etc/ssl/certs", "PIP_CONSTRAINT": str(wheels / "constraints.txt"),
    }  # fmt: skip
    settings = read_pip_settings(shown, variables)
    assert settings.files == (Path("/etc/pip.conf"),)
    assert settings.user_files == (Path("/home/someone/.config/pip/pip.conf"),)
    assert set(settings.environment) == {
        *("PIP_FIND_LINKS", "PIP_CONSTRAINT", "https_proxy", "SSL_CERT_DIR")
    }
    certificates = {path for path in CERTIFICATES if path.exists()}
    # An index with its neighbours: its pages link to them. What lies in another is there with it.
    assert set(settings.paths) == {wheels, index.parent, *certificates}


def test_an_archive_of_another_family_has_no_such_release() -> None:
    debian, ubuntu = distros.DISTRIBUTIONS
    archive = PackageArchive("debian", "bookworm", "http://archive.invalid/debian/")
    assert ubuntu.why_not(archive) == "the apt sources here are Debian's"
    assert debian.why_not(None) == "there are no apt sources of a Debian or Ubuntu release here"


def test_nothing_tried_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["distros", "--folder", str(tmp_path)])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/sbin/debootstrap")
    monkeypatch.setattr(distros, "find_archive", lambda: None)
    assert distros.main() == 1
    reasons = capsys.readouterr().out.splitlines()
    assert len(reasons) == len(distros.DISTRIBUTIONS)
    assert all("cannot be had: there are no apt sources" in line for line in reasons)


@pytest.mark.parametrize("code", [0, 3])
def test_a_base_is_made_below_a_folder_with_a_blank(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """debootstrap takes such a path for two words; its own log lies in the root that it gives up."""
    # GIVEN a debootstrap that takes its target for words, as the real one does
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "debootstrap"
    program.write_text(
        "#!/bin/sh\nfor word; do :; done\ntarget=$5\n[ -d $target ] || exit 7\n"
        'mkdir "$target/debootstrap"; echo "the reason" >"$target/debootstrap/debootstrap.log"\n'
        f"exit {code}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(distros, "run_alone", run_here)
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    archive = PackageArchive("nobody's", "none", "http://localhost:1/debian")
    trial = distros.Trial(distros.DISTRIBUTIONS[0], archive, folder, folder / "base")
    # WHEN the root is made
    log = folder / "log"
    assert trial.make_base(log) == code
    # THEN it stands there, or the log has what debootstrap wrote
    assert (folder / "base/debootstrap").exists() == (code == 0)
    assert not (folder / "base.partial").exists()
    assert (log.read_text() == "the reason\n") == (code != 0)


def run_here(words: Sequence[str | Path], log: Path) -> int:
    """As `run_alone`, without mounts of its own."""
    with log.open("w") as text:
        return subprocess.run(words, stdout=text, stderr=text, check=False).returncode


def can_unshare() -> bool:
    words = ["unshare", "--mount", "--pid", "--fork", "true"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not can_unshare(), reason="needs root and namespaces of Linux"
)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A root with this machine's own programs."""
    root = Root(tmp_path / "root", environment={"PIP_TIMEOUT": "7"})
    for name in ("proc", "sys", "dev", "home", "tmp"):
        (root.folder / name).mkdir(parents=True)
    (root.folder / "tmp").chmod(0o777)
    for path in (Path("/usr"), *Path("/").glob("lib*"), Path("/bin")):
        if path.is_symlink():
            root.path(path).symlink_to(path.readlink())
        else:
            root.add_bind(Bind(path, path))
    return root


@pytest.mark.slow
@needs_namespaces
def test_a_user_inside_has_his_own_terminal_and_no_mounts_stay(root: Root, tmp_path: Path) -> None:
    home = root.path(HOME)
    (home / "etprof" / "sub").mkdir(parents=True)
    for path in (home, home / "etprof"):
        os.chown(path, USER_ID, USER_ID)
    log = tmp_path / "log"

    def type_line(line: str) -> tuple[int, str]:
        code = root.run(["bash", "-c", distros.TERMINAL, line], log)
        return code, log.read_text()

    assert type_line("export KEPT='a b' && cd sub")[0] == 0
    assert type_line('echo "$KEPT $PIP_TIMEOUT $(basename "$PWD") $(id -u)"') == (
        0,
        "a b 7 sub 1000\n",
    )
    assert type_line("exit 5")[0] == 5
    assert type_line("unshare --map-root-user id -u") == (0, "0\n"), "as on a machine"
    code, text = type_line("touch /usr/new")
    assert (code, "Read-only" in text) == (1, True)
    assert type_line("ls /proc | grep -c '^[0-9]*$'")[1].strip() in {"3", "4", "5", "6"}
    assert mounts_below(tmp_path) == []


INSIDE = "exec >/tmp/alive; setsid sleep 4321 & echo ready; wait"
"""Holds a pipe open as long as one of them lives; the second has left the process group."""


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whoever_ends_it_leaves_no_process_and_no_mount(
    number: signal.Signals, root: Root, tmp_path: Path
) -> None:
    alive = root.folder / "tmp" / "alive"
    os.mkfifo(alive)
    alive.chmod(0o666)
    script = (
        "from pathlib import Path, PosixPath; from tests.distros.root import HOME, USER_ID, Bind, Root\n"
        f"root = Root({root.folder!r}, binds={root.binds!r})\n"
        f"root.run(['bash', '-c', {INSIDE!r}], {tmp_path / 'log'!r})"
    )
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.DEVNULL
        ) as process:
            assert select.select([reader], [], [], 60)[0], (tmp_path / "log").read_text()
            assert os.read(reader, 100) == b"ready\n"
            process.send_signal(number)
        assert select.select([reader], [], [], 10)[0], "a process is left"
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)
    assert mounts_below(tmp_path) == []
    remove_tree(root.folder)
    assert not root.folder.exists()


@needs_namespaces
def test_a_folder_with_mounts_is_not_removed(tmp_path: Path) -> None:
    """Removing it would remove what is mounted there: files of this machine."""
    inside = tmp_path / "root" / "a b"
    inside.mkdir(parents=True)
    script = (
        f"from pathlib import Path; from tests.distros.root import remove_tree\n"
        f"remove_tree(Path({str(tmp_path / 'root')!r}))"
    )
    mount = 'mount -t tmpfs none "$1"; touch "$1/file"; "$2" -c "$3"; ls "$1"'
    words = ["unshare", "--mount", "sh", "-c", mount, "sh", str(inside), sys.executable, script]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"OSError: {inside} is mounted; unmount it, and remove" in done.stderr
    assert done.stdout == "file\n"
