"""Trouble outside of the engine passes, and is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from reprise.spark_jobs.errors import CheckpointError, SupersededError

log = logging.getLogger("reprise.engine")


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
