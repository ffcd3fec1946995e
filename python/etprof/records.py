"""What every JSON file of ours is read with: checked fields, frozen, errors that name the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etprof.base.json_input import MOST_JSON_BYTES, read_json
from etprof.errors import InputFileError

if TYPE_CHECKING:
    from pathlib import Path

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""What a signed 64-bit integer holds: nanoseconds of 292 years, or bytes."""


class Record(BaseModel):
    """Part of a JSON file; unknown fields belong to newer versions and are kept out."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


Document = TypeVar("Document", bound=Record)


def read_record(
    kind: type[Document], path: Path, *, way_out: str, most_bytes: int = MOST_JSON_BYTES
) -> Document:
    """Reads and checks the JSON file `path`; raises InputFileError with field and way out."""
    document = read_json(path, way_out=way_out, most_bytes=most_bytes)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        msg = f"{path} is damaged: {first_problem(error)}; {way_out}"
        raise InputFileError(msg) from None


def first_problem(error: ValidationError) -> str:
    """Says what is wrong first, with its field."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "document"
    return f"{field}: {first['msg']}"
