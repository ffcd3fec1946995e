"""A damaged Parquet export is told by its own name, whatever pyarrow raises for it (S1)."""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from etprof.base.errors import InputFileError
from etprof.cli import main
from etprof.history import exchange
from etprof.history.exchange import FORMAT, SCHEMA_VERSION, Header, read_parquet

COLUMNS = ("pins", "artefacts", "categories", "raw")


def export(moment_us: int = 0, name: str = "run") -> bytes:
    """Returns an export of one run, as far as its columns are read before they are checked."""
    row = {"run_name": [name], **{column: ["{}"] for column in COLUMNS}}
    row["measured_at"] = pa.array([moment_us], pa.timestamp("us", tz="UTC"))
    header = Header(format=FORMAT, schema_version=SCHEMA_VERSION, baselines=())
    table = pa.table(row).replace_schema_metadata({"etprof_history": header.model_dump_json()})
    stream = io.BytesIO()
    parquet.write_table(
        table, stream, compression="snappy", use_dictionary=False, write_statistics=False
    )
    return stream.getvalue()


def without_a_page() -> bytes:
    """Returns an export whose first page is overwritten, behind its magic bytes."""
    data = bytearray(export())
    data[4:40] = bytes(36)
    return bytes(data)


def with_wrong_compression() -> bytes:
    """Returns an export of which a page claims to be far longer than it is."""
    name = "".join(sha256(bytes([part])).hexdigest() for part in range(8))
    data = bytearray(export(name=name))
    # Before the name: its length, a level, and how long all of that is.
    place = data.index(name[:20].encode())
    data[place - 16 : place] = b"\xff" * 16
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [without_a_page(), with_wrong_compression(), export(moment_us=2**62)],
    ids=["page", "compression", "date"],
)
def test_damage_is_one_line_and_4(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "export.parquet"
    path.write_bytes(data)
    with pytest.raises(InputFileError, match=r"export\.parquet is damaged: .+; export it again"):
        list(read_parquet(path)[1])
    code = main(["history", "import", str(path), "--store", str(tmp_path / "h.sqlite")])
    assert code == 4
    assert capsys.readouterr().err.count("\n") == 1


def test_a_number_that_json_lacks_ends_an_export_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        exchange._write_list(tmp_path / "all.json", "[", [{"median": float("nan")}], "]")
    assert list(tmp_path.iterdir()) == []
