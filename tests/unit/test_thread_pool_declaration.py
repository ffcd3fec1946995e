"""What the runner declares again of ExecuTorch's thread pool, compared with a header that has it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command

ROOT = Path(__file__).parents[2]
HEADER = """
#pragma once
#include <cstddef>
#include <cstdint>
namespace executorch::extension::threadpool {
class ThreadPool final {
 public:
    std::size_t get_thread_count() const;
    [[deprecated("experimental")]] bool _unsafe_reset_threadpool(std::uint32_t count);
};
ThreadPool* get_threadpool();
}
"""


@pytest.fixture
def compiler() -> str:
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler: apt install g++")
    return compiler


def check(compiler: str, *headers: Path) -> Completed:
    """Compiles what asks for the pool, without output."""
    folders = [f"-I{path}" for path in (*headers, ROOT / "cpp", ROOT / "cpp/runner")]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    return run_command([compiler, *flags, *folders, ROOT / "cpp/runner/process.cpp"])


@pytest.mark.slow
def test_a_header_that_says_the_same_compiles(compiler: str, tmp_path: Path) -> None:
    """S3-6: with ExecuTorch's sources, and with its wheel, which has no such header."""
    assert check(compiler).exit_code == 0
    write_header(tmp_path, HEADER)
    done = check(compiler, tmp_path)
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("std::uint32_t count", "std::uint64_t count"),
        ("bool _unsafe", "void _unsafe"),
        ("std::size_t get_thread", "int get_thread"),
        ("ThreadPool* get_threadpool()", "ThreadPool& get_threadpool()"),
    ],
)
def test_a_header_that_changed_does_not_compile(
    compiler: str, tmp_path: Path, said: str, instead: str
) -> None:
    """S3-6: the runner's own declaration was checked by nothing, in source builds too."""
    assert said in HEADER
    write_header(tmp_path, HEADER.replace(said, instead))
    done = check(compiler, tmp_path)
    assert done.exit_code != 0
    assert "static assertion failed" in done.stderr or "static_assert failed" in done.stderr


def write_header(folder: Path, text: str) -> None:
    path = folder / "executorch/extension/threadpool/threadpool.h"
    path.parent.mkdir(parents=True)
    path.write_text(text)
