"""A status document that somebody else made, read back: total, and closed only where it has to be.

Fields that are not known here are let through, as a newer controller may say more.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from reprise.controller.status.model import FORMAT, StatusDocument

_ADAPTER = TypeAdapter(StatusDocument)


class DocumentError(Exception):
    """Not a status document of a format that is known here; names the field."""


def parse_document(value: Any) -> StatusDocument:
    """The inverse of `plain`.  DocumentError says what is wrong with which field."""
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        raise DocumentError(f"format: expected {FORMAT}, found {found!r}")
    try:
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise DocumentError(f"{where}: {first['msg']}") from None
