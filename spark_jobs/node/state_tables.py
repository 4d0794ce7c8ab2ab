"""Names of the tables that a snapshot holds beside those of the user's state."""

from __future__ import annotations

import pyarrow as pa

from reprise.spark_jobs.contract import Tables

FEEDBACK = "feedback/"
"""Prefix of the tables that hold a partition's last output over its feedback edges."""

STAGED = "staged/"
"""Prefix of the tables that hold output which is not shown yet, by batch."""

WATERMARK = "runtime/watermark"
MARKS, MARKS_ALONE = "runtime/marks", "runtime/marks-alone"
"""The tables with the watermarks of batches that a source can read again; the latter of one without state."""


def first_staged(tables: Tables, otherwise: int) -> int:
    """The oldest batch whose output a checkpoint holds because it was not shown before."""
    return min((int(n.removeprefix(STAGED)) for n in tables if n.startswith(STAGED)), default=otherwise)


def watermark_table(watermark: int | None) -> pa.Table:
    """How a snapshot holds it."""
    return pa.table({"watermark": pa.array([watermark], pa.int64())})
