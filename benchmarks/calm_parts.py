"""What `benchmarks.calm` runs with: an operator of a given weight, and a store that is asleep when it is told to be."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from reprise.spark_jobs.contract import Inbox, Operator, Place, Tables

PROTOCOL = "sleepy"
ASLEEP = "asleep"
"""Name of the file beside a location that holds for how many seconds each read of it sleeps."""


class Ballast(Operator):
    """Counts rows, and holds `megabytes` of numbers that no encoding makes smaller."""

    def __init__(self, *, megabytes: int) -> None:
        self.megabytes = megabytes

    def initial(self, place: Place) -> Any:
        numbers = np.random.default_rng(place.index).integers(0, 2**62, size=self.megabytes * 2**17)
        return pa.table({"number": numbers}), 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        rows = inbox.table()
        count = state[1] + (0 if rows is None else rows.num_rows)
        return (state[0], count), pa.table({"rows": [count]})

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"ballast": state[0], "count": pa.table({"rows": [state[1]]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["ballast"], tables["count"]["rows"][0].as_py()


class SleepyFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Files of this machine below `sleepy:///folder`; each read takes as long as the file `ASLEEP` above it says."""

    protocol = PROTOCOL

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return super()._strip_protocol(str(path).removeprefix(f"{PROTOCOL}://"))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        file = Path(self._strip_protocol(path))
        for folder in file.parents:
            if (told := folder / ASLEEP).exists():
                time.sleep(float(told.read_text() or "0"))
                break
        return bytes(super().cat_file(path, start, end, **more))


def make_known(folder: Path) -> None:
    """Write what tells fsspec of the protocol in every process that has `folder` on its PYTHONPATH."""
    info = folder / "reprise_sleepy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: reprise-sleepy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[fsspec.specs]\n{PROTOCOL} = {__name__}:{SleepyFileSystem.__name__}\n"
    )
