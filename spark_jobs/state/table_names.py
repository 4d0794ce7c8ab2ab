"""Names of the tables that a snapshot, and a savepoint, holds beside those of the user's state; and the version of that."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from reprise.spark_jobs.contract import FIRST_STATE_VERSION, Operator, Place, Tables
from reprise.spark_jobs.errors import StateVersionError
from reprise.spark_jobs.pages import Part

FEEDBACK = "feedback/"
"""Prefix of the tables that hold a partition's last output over its feedback edges."""

STAGED = "staged/"
"""Prefix of the tables that hold output which is not shown yet, by batch."""

WATERMARK = "runtime/watermark"
MARKS, MARKS_ALONE = "runtime/marks", "runtime/marks-alone"
"""The tables with the watermarks of batches that a source can read again; the latter of one without state."""

STATE_VERSION = "runtime/state-version"
"""The table with `Operator.state_version` of the class that has given the state; none of a state of the first version."""

NOT_OF_OPERATOR = ("runtime/", FEEDBACK, STAGED)
"""Prefixes of all of them."""


def watermark_table(watermark: int | None) -> pa.Table:
    """How a snapshot holds it."""
    return pa.table({"watermark": pa.array([watermark], pa.int64())})


def version_table(operator: Operator) -> dict[str, pa.Table]:
    """How a state of this operator says its version."""
    if operator.state_version == FIRST_STATE_VERSION:
        return {}
    return {STATE_VERSION: pa.table({"version": pa.array([operator.state_version], pa.int64())})}


def version_of(parts: Mapping[str, Part]) -> int:
    """The version of a state."""
    table = parts.get(STATE_VERSION)
    return int(table["version"][0].as_py()) if isinstance(table, pa.Table) else FIRST_STATE_VERSION


def upgraded(operator: Operator, place: Place, version: int, own: Tables) -> Tables:
    """The operator's own tables of a state of some version as this class gives them.  StateVersionError: it does not read
    that one; whatever user code raises."""
    if not operator.reads_state(version):
        raise StateVersionError(
            f"operator {place.operator}: its stored state has version {version}, and {type(operator).__name__} reads "
            f"{operator.state_versions}"
        )
    return own if version == operator.state_version else dict(operator.upgrade_state(place, version, own))
