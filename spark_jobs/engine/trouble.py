"""Trouble outside of the engine passes, and is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from reprise.spark_jobs.errors import CheckpointError, SupersededError
from reprise.spark_jobs.node.command import Report

log = logging.getLogger("reprise.engine")


SLOW_S = 3.0
"""A job that takes longer than this many seconds is worth a line in the log."""


def say_slow(job: int, took: float, slots: Sequence[str], slowest: Report) -> None:
    """The line in the log; `slowest`: the report of the node that was busy for longest."""
    log.warning(
        "event=slow-job job=%d took=%.1f slots=%d busiest=%s busy=%.1f",
        job, took, len(slots), slots[slowest.slot], slowest.busy_s,
    )  # fmt: skip


@contextmanager
def passing(problems: list[str], what: str) -> Iterator[None]:
    """Trouble with what is outside (a store, a source, a disk) is a problem and no end, whatever it raises: clients of
    stores have exceptions of their own.  Only a later driver ends this one (SupersededError)."""
    try:
        yield
    except SupersededError:
        raise
    except CheckpointError as error:  # names its file
        problems.append(str(error))
    except Exception as error:
        log.warning("event=trouble what=%r", what, exc_info=True)
        problems.append(f"{what}: {type(error).__name__}: {error}")
