"""What packages hold is asserted: each check of `nox -s packages` is red for what it looks for."""

from __future__ import annotations

import tomllib

import pytest

from tests.packages import (
    FILES,
    FOLDERS,
    ROOT,
    library_problems,
    list_tracked,
    read_short_list,
    source_problems,
    wheel_problems,
)

TRACKED = ("python/etprof/api.py", "models/toy/model.py", "cpp/a.cpp", "tests/unit/test_a.py")
SOURCE = [f"etprof-1/{name}" for name in (*FILES, *TRACKED[:3])]
WHEEL = [
    "etprof/api.py", "etprof/models/toy/model.py", "etprof/_etdump.cpython-312-x86_64-linux-gnu.so",
    "etprof/bin/etprof-runner", "etprof/bin/etprof-runner-trace", "etprof/source/CMakeLists.txt",
    "etprof/source/cpp/a.cpp", "etprof-1.dist-info/METADATA",
]  # fmt: skip


def test_good_packages_have_no_problem() -> None:
    assert source_problems(SOURCE, TRACKED) == []
    assert wheel_problems(WHEEL, TRACKED) == []
    assert library_problems({"external_libs": {"libexecutorch.so": None}}) == []


def test_what_lies_at_the_top_is_in_the_source_archive_or_left_out_by_name() -> None:
    """A new file at the top was found by the lane of packages alone, which takes ten minutes."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    left_out = {name.lstrip("/") for name in tool["scikit-build"]["sdist"]["exclude"]}
    at_top = {name.partition("/")[0] for name in list_tracked() if not name.startswith(".")}
    # Of the documentation its pages are there.
    assert at_top - left_out == {*FILES, *FOLDERS, "docs"} - {"PKG-INFO"}


@pytest.mark.parametrize(
    "strange",
    ["tests/unit/test_a.py", "python/etprof/_etdump.so", "python/etprof/bin/x", "build/a.o"],
)
def test_neither_tests_nor_products_are_in_the_source_archive(strange: str) -> None:
    (problem,) = source_problems([*SOURCE, f"etprof-1/{strange}"], TRACKED)
    assert problem == f"no part of the source archive: {strange}"


@pytest.mark.parametrize("strange", ["tests/a.py", "etprof/a.py", "etprof/source/cpp/a.o"])
def test_a_wheel_holds_nothing_else(strange: str) -> None:
    assert wheel_problems([*WHEEL, strange], TRACKED) == [f"no part of the wheel: {strange}"]


@pytest.mark.parametrize("place", range(len(SOURCE)))
def test_everything_that_builds_is_in_the_source_archive(place: int) -> None:
    (problem,) = source_problems(SOURCE[:place] + SOURCE[place + 1 :], TRACKED)
    assert problem == f"missing in the source archive: {SOURCE[place].partition('/')[2]}"


@pytest.mark.parametrize("place", range(6))
def test_everything_that_runs_is_in_a_wheel(place: int) -> None:
    assert len(wheel_problems(WHEEL[:place] + WHEEL[place + 1 :], TRACKED)) == 1


def test_a_second_reader_is_that_of_another_python() -> None:
    """The reader of an in-tree link was packed beside the one that was built."""
    other = "etprof/_etdump.cpython-311-x86_64-linux-gnu.so"
    assert wheel_problems([*WHEEL, other], TRACKED) == ["2 readers in the wheel, not 1"]


def test_a_library_that_no_package_brings_is_named() -> None:
    (problem,) = library_problems({"external_libs": {"libtorch.so": None}})
    assert "libtorch.so" in problem


def test_the_short_list_is_all_that_etprof_requires_but_what_exports() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    left_out = sorted(set(required) - set(read_short_list()))
    assert [text.partition("=")[0].strip("><") for text in left_out] == [
        "executorch",
        "pyelftools",
        "pyinstrument",
        "torch",
    ]
    assert set(read_short_list()) < set(required)


def test_all_files_of_the_repository_are_known() -> None:
    assert {"pyproject.toml", "tests/packages.py"} <= set(list_tracked())
