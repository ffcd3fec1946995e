"""What every JSON file of ours is read with: checked fields, frozen, errors that name the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etprof.errors import InputFileError

if TYPE_CHECKING:
    from pathlib import Path

Count = Annotated[int, Field(ge=0)]


class Record(BaseModel):
    """Part of a JSON file; unknown fields belong to newer versions and are kept out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


Document = TypeVar("Document", bound=Record)


def read_record(kind: type[Document], path: Path, *, way_out: str) -> Document:
    """Reads and checks the JSON file `path`; raises InputFileError with field and way out."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}; {way_out}"
        raise InputFileError(msg) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "document"
        msg = f"{path} is damaged: {field}: {first['msg']}; {way_out}"
        raise InputFileError(msg) from None
