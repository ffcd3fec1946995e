"""ExecuTorch's wheel is the one whose hash stands beside the pin, on every path that fetches it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from etprof.backends.executorch_version import pinned_version
from etprof.base.errors import BuildError
from etprof.targets.emulator.cache import Cache
from etprof.targets.emulator.installation import fetch_sdk

ROOT = Path(__file__).parents[2]
HASHES = ROOT / "cmake/executorch-wheels.txt"


def test_each_wheel_has_its_hash() -> None:
    hashes = re.findall(r"^--hash=sha256:([0-9a-f]{64})$", HASHES.read_text(), re.MULTILINE)
    assert len(hashes) == len(set(hashes)) == len(["3.11", "3.12", "3.13", "3.14"]) * 3


def test_no_path_fetches_it_without_them() -> None:
    """S3-5: neither CMake nor the emulator's setup expected a hash."""
    sources = [*ROOT.glob("cmake/*.cmake"), *ROOT.glob("python/etprof/**/*.py")]
    fetches = re.compile(r"pip download|run_pip\(.download")
    fetching = [path for path in sources if fetches.search(path.read_text())]
    assert {path.name for path in fetching} == {"ExecuTorchWheel.cmake", "installation.py"}
    for path in fetching:
        assert "--require-hashes" in path.read_text()
        assert "executorch-wheels.txt" in path.read_text()


def test_a_wheel_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-5: whatever an index, or one named beside it, gave was unpacked and linked."""
    links = tmp_path / "links"
    links.mkdir()
    name = f"executorch-{pinned_version()}"
    with zipfile.ZipFile(links / f"{name}-cp311-cp311-manylinux_2_28_aarch64.whl", "w") as wheel:
        metadata = f"Metadata-Version: 2.1\nName: executorch\nVersion: {pinned_version()}\n"
        wheel.writestr(f"{name}.dist-info/METADATA", metadata)
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
        wheel.writestr("executorch/lib/libexecutorch.so", b"planted")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    (tmp_path / "cache").mkdir()
    cache = Cache(tmp_path / "cache")
    with pytest.raises(BuildError) as caught:
        fetch_sdk(cache, tmp_path / "work")
    assert "could not fetch the aarch64 wheel" in str(caught.value)
    assert "hash" in str(caught.value).lower() or "Got" in str(caught.value)
    assert not (tmp_path / "cache" / "sdk").exists()
