"""Another ExecuTorch than the one etprof is built for is refused by name, before anything is done."""

from __future__ import annotations

import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest

from etprof import doctor
from etprof.backends import executorch_version
from etprof.backends.executorch_version import find_other_version, pinned_version
from etprof.base.errors import BuildError
from etprof.cli import main
from etprof.targets.local import LocalTarget
from tests import versions

MINOR, PATCH = pinned_version().rsplit(".", 1)
PATCH_BESIDE = f"{MINOR}.{int(PATCH) + 1}"
OTHER = "1.4.1"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str | None:
    """Has metadata say that this version of ExecuTorch is installed."""

    def version_of(_: str) -> str:
        if request.param is None:
            raise PackageNotFoundError
        return str(request.param)

    monkeypatch.setattr(executorch_version, "version", version_of)
    # Where etprof is installed and not linked, ExecuTorch's own lies beside it.
    monkeypatch.setattr(executorch_version, "distributions", lambda **_: ())
    monkeypatch.setattr(doctor, "version", version_of)
    answer: str | None = request.param
    return answer


@pytest.mark.parametrize(
    ("installed", "other"),
    [
        (pinned_version(), None),
        (PATCH_BESIDE, None),
        (f"{MINOR}.0a0+3b60683", None),
        (f"{pinned_version()}+cpu", None),
        (OTHER, OTHER),
        (f"{MINOR}1.0", f"{MINOR}1.0"),
        ("0+unknown", "0"),
        (None, None),
    ],
    indirect=["installed"],
)
def test_what_decides_is_the_minor_release(installed: str | None, other: str | None) -> None:
    assert find_other_version() == other


@pytest.mark.parametrize("installed", [OTHER], indirect=True)
@pytest.mark.parametrize(
    "words",
    [
        ("export", "toy_cnn", "--out", "a.pte"),
        ("profile", "toy_cnn"),
        ("numerics", "toy_cnn"),
        ("optimize", "toy_cnn", "--outdir", "found"),
    ],
    ids=lambda words: words[0],
)
def test_nothing_is_done_with_another_version(
    words: tuple[str, ...],
    installed: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was "the runtime cannot execute the method; export it for another backend"."""
    monkeypatch.chdir(tmp_path)
    assert main(list(words)) == 3
    error = capsys.readouterr().err
    assert f"needs ExecuTorch {pinned_version()}, and {installed} is installed" in error
    assert f"`pip install executorch=={pinned_version()}`" in error
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("installed", "status"),
    [(pinned_version(), "ok"), (PATCH_BESIDE, "note"), (OTHER, "missing"), (None, "missing")],
    indirect=["installed"],
)
def test_doctor_says_so(installed: str | None, status: str) -> None:
    """It was "ok" beside the version that is wanted."""
    check, of_runner = doctor._check_executorch(), doctor._check_runner()
    assert check.status == status
    assert (check.way_out is None) == (status == "ok")
    assert (of_runner.status == "missing") == (installed == OTHER)
    if installed == OTHER:
        assert {check.way_out, of_runner.way_out} == {f"pip install executorch=={pinned_version()}"}
        assert f"{OTHER} is installed" in check.detail
        assert f"{OTHER} is installed" in of_runner.detail


EXPORTS = versions.Question("etprof exports", ("export",), needs_pin=True)
READS = versions.Question("etprof reads runs", ("analyze",), shows="convolution")
REFUSED = "etprof: exporting needs ExecuTorch 1.5.1, and 1.4.1 is installed: `pip`"


@pytest.mark.parametrize(
    ("question", "version", "ended", "is_right"),
    [
        (EXPORTS, "1.5.0", (0, "", ""), True),
        (EXPORTS, "1.4.1", (3, "", REFUSED), True),
        (READS, "1.4.1", (0, "a convolution", ""), True),
        # Where a refusal is due, anything else; where none is due, a refusal.
        (EXPORTS, "1.4.1", (0, "", ""), False),
        (EXPORTS, "1.5.0", (3, "", REFUSED), False),
        (READS, "1.4.1", (3, "", REFUSED), False),
        # Another exit code, another reason, success that shows nothing.
        (EXPORTS, "1.4.1", (70, "", REFUSED), False),
        (EXPORTS, "1.4.1", (3, "", "etprof: libexecutorch.so: cannot open"), False),
        (READS, "1.5.1", (0, "nothing", ""), False),
    ],
)
def test_an_answer_is_right_where_it_is_due(
    question: versions.Question, version: str, ended: tuple[int, str, str], is_right: bool
) -> None:
    done = subprocess.CompletedProcess([], *ended)
    assert versions.judge(question, version, "1.5.1", done).is_right == is_right


def test_without_a_pin_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packager's metadata may allow several versions, and a folder of sources has none."""
    for metadata in (
        {"return_value": ["executorch>=1.5,<1.6"]},
        {"side_effect": PackageNotFoundError},
    ):
        executorch_version._find_pin.cache_clear()
        monkeypatch.setattr(executorch_version, "requires", Mock(**metadata))
        monkeypatch.setattr(executorch_version, "version", lambda _: OTHER)
        assert find_other_version() is None
        with pytest.raises(BuildError, match="no ExecuTorch version"):
            pinned_version()
    executorch_version._find_pin.cache_clear()


def test_a_runner_is_judged_by_the_libraries_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an environment that sees the system's packages, Python may import another ExecuTorch."""
    monkeypatch.setattr(executorch_version, "version", lambda _: pinned_version())
    assert find_other_version(tmp_path) is None
    folder = tmp_path / f"executorch-{OTHER}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: executorch\nVersion: {OTHER}\n")
    assert find_other_version(tmp_path) == OTHER
    assert find_other_version() is None


@pytest.mark.parametrize("installed", [OTHER], indirect=True)
def test_a_runner_of_the_users_own_is_started_beside_any_version(
    installed: str, tmp_path: Path
) -> None:
    """A build against another version is named with --runner; the installed one is not asked."""
    assert LocalTarget().sme_modes()
    with pytest.raises(BuildError, match=f"and {installed} is installed"):
        LocalTarget().own_runner(tracing=False)


def test_the_table_is_of_the_pinned_version_and_those_before_it() -> None:
    pinned = versions.pinned_by((versions.ROOT / "pyproject.toml").read_text("utf-8"))
    assert versions.VERSIONS[-1] == pinned == pinned_version()
    page = versions.PAGE.read_text("utf-8")
    rows = [
        line.split(" | ") for line in page.splitlines() if line.startswith(("| etprof ", "| its "))
    ]
    questions = [row[0].removeprefix("| ") for row in rows]
    assert questions == [question.title for question in (*versions.WITH_IT, *versions.ITS_FILES)]
    assert {len(row) for row in rows} == {1 + len(versions.VERSIONS)}
    # What it is built for works in every way.
    assert {row[-1] for row in rows} == {"yes |"}
