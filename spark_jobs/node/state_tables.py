"""Names of the tables that a snapshot holds beside those of the user's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from reprise.spark_jobs.contract import FIRST_STATE_VERSION, Operator, Place, Tables
from reprise.spark_jobs.operators.paged import freezer
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.state.table_names import (
    FEEDBACK,
    MARKS,
    MARKS_ALONE,
    NOT_OF_OPERATOR,
    STAGED,
    STATE_VERSION,
    WATERMARK,
    upgraded,
    version_of,
    version_table,
    watermark_table,
)

__all__ = [
    "FEEDBACK", "INPUTS", "MARKERS", "MARKS", "MARKS_ALONE", "SENT", "STAGED", "STATE_VERSION", "WATERMARK", "first_staged",
    "frozen", "restored", "version_of", "watermark_table",
]  # fmt: skip

SENT, MARKERS, INPUTS = "runtime/sent", "runtime/markers", "runtime/inputs"
"""The tables of a partition that applies in the order of arrival and stores itself by its own clock: the number of its last
message; which message of itself ("") and of each input was the last of which batch; and how far each input is."""


def frozen(operator: Operator, paged: bool, state: Any) -> Callable[[], Parts]:
    """Fix the state as it is now; what encodes it, with its version."""
    encode = freezer(operator, paged)(state)
    if operator.state_version == FIRST_STATE_VERSION:
        return encode

    def encoded() -> Parts:
        return {**encode(), **version_table(operator)}

    return encoded


def restored(operator: Operator, place: Place, tables: Tables) -> Any:
    """The state out of the tables of a snapshot, brought to this version first.  StateVersionError: the class does not read
    this one; whatever user code raises."""
    own = {name: t for name, t in tables.items() if not name.startswith(NOT_OF_OPERATOR)}
    version = version_of(tables)
    if not own and version == FIRST_STATE_VERSION:  # it had a watermark or a loop, and no state
        return operator.restore(place, own)
    return operator.restore(place, upgraded(operator, place, version, own))


def first_staged(names: Iterable[str], otherwise: int) -> int:
    """The oldest batch whose output a state holds because it was not shown before.  `names`: of its tables."""
    return min((int(n.removeprefix(STAGED)) for n in names if n.startswith(STAGED)), default=otherwise)
