"""The emulator's cache: complete parts, checksums, damage, removal, folders that refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etprof.base.errors import BuildError, InputFileError, OutputError
from etprof.targets.emulator.cache import REBUILD, Cache, cache_root


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "cache"))
    return Cache.find()


def add_part(cache: Cache, content: bytes = b"program") -> Path:
    """Puts a part of one file into the cache and returns that file."""
    with cache.work_folder() as work:
        (work / "new" / "bin").mkdir(parents=True)
        (work / "new" / "bin" / "tool").write_bytes(content)
        cache.add("tools", version="1.0", source="here", folder=work / "new")
    return cache.folder / "tools" / "bin" / "tool"


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "mine"))
    assert cache_root() == tmp_path / "mine"
    monkeypatch.delenv("ETPROF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "etprof"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "etprof"


def test_a_complete_part_is_found_with_its_checksums(cache: Cache) -> None:
    assert cache.check("tools") is None
    file = add_part(cache)
    part = cache.check("tools")
    assert part is not None
    assert part.version == "1.0"
    assert set(part.files) == {"tools/bin/tool"}
    assert json.loads(cache.manifest_path.read_text())["schema_version"] == 1
    assert file.read_bytes() == b"program"


def test_an_interrupted_part_counts_as_missing_and_leaves_nothing(cache: Cache) -> None:
    # GIVEN a setup that dies while it unpacks
    def unpack_half() -> None:
        with cache.work_folder() as work:
            (work / "half").write_bytes(b"ha")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack_half()
    # THEN the part is not there, and a new setup can have it
    assert cache.check("tools") is None
    assert [path.name for path in cache.folder.iterdir()] == ["lock"]
    add_part(cache)
    assert cache.check("tools") is not None


@pytest.mark.parametrize("content", [b"PROGRAM", b"prog", b""])
def test_a_damaged_file_is_named(cache: Cache, content: bytes) -> None:
    file = add_part(cache)
    file.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        cache.check("tools")
    assert (
        str(caught.value) == f"{file} is damaged (its SHA-256 is not the recorded one); {REBUILD}"
    )


def test_a_deleted_file_is_named(cache: Cache) -> None:
    file = add_part(cache)
    file.unlink()
    with pytest.raises(InputFileError) as caught:
        cache.check("tools")
    assert str(caught.value) == f"{file} is missing from the cache; {REBUILD}"


def test_a_damaged_manifest_is_named(cache: Cache) -> None:
    add_part(cache)
    cache.manifest_path.write_text('{"schema_version": 7}')
    with pytest.raises(InputFileError, match=r"manifest\.json is damaged: schema_version: "):
        cache.check("tools")
    # THEN a setup begins a new one
    add_part(cache)
    assert cache.check("tools") is not None


def test_a_part_can_be_replaced(cache: Cache) -> None:
    add_part(cache)
    assert add_part(cache, b"newer").read_bytes() == b"newer"
    assert cache.check("tools") is not None


def test_removal_frees_everything(cache: Cache) -> None:
    add_part(cache)
    assert cache.remove() > 0
    assert not cache.folder.exists()
    assert cache.remove() == 0


def test_two_setups_at_once_are_refused(cache: Cache) -> None:
    with (
        cache.work_folder(),
        pytest.raises(BuildError, match="another `etprof emulator setup` is at work in"),
        cache.work_folder(),
    ):
        pass


def test_a_cache_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a cache below something that is no folder: refused even for root
    (tmp_path / "file").touch()
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "file"))
    with pytest.raises(OutputError) as caught, Cache.find().work_folder():
        pass
    assert str(caught.value) == (
        f"cannot write to the cache {tmp_path / 'file' / 'emulator'} (Not a directory); name "
        f"another with ETPROF_CACHE"
    )
