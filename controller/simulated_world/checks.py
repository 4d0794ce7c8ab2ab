"""What must hold after every event of the world, and at its end (docs/simulated-world.md lists it with its sources)."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pyarrow import parquet

from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.topology import LEDGER, Reference
from reprise.controller.zookeeper import paths


class Violation(Exception):
    """Something that must hold does not; `invariant` names it."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class Checks:
    """Watches one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.reference = cluster, Reference(cluster.resource)
        self._found: Violation | None = None
        self._seen: dict[str, int] = {}
        self._looked = -1
        self._desired: Mapping[str, Any] | None = None
        self._shown: set[str] = set()
        self._sink, self._ledger = f"{cluster.store.name}/sink/", f"{cluster.store.name}/{LEDGER}"
        cluster.store.written = self._file
        cluster.world.watchers.append(self.look)
        self._said = _Said(self)
        logging.getLogger("reprise").addHandler(self._said)

    def close(self) -> None:
        logging.getLogger("reprise").removeHandler(self._said)

    def breaks(self, invariant: str, detail: str) -> None:
        """Note what does not hold; the loop ends with the first."""
        self._found = self._found or Violation(invariant, detail)

    def look(self) -> None:
        """After an event."""
        tree = self.cluster.ensemble.tree
        if self._looked != tree.written:
            self._looked = tree.written
            for name, check in _RECORDS.items():
                znode = tree.znodes.get(f"{self.cluster.root}/{name}")
                written = 0 if znode is None else znode.written
                if self._seen.get(name, 0) != written:
                    self._seen[name] = written
                    check(self)
        for name, problem in self.cluster.world.problems:
            self.breaks("unforeseen", f"{name} has ended with {problem!r}")
        if self._found is not None:
            raise self._found

    # -- E1: output -----------------------------------------------------------------------------------------------------

    def _file(self, path: str, data: bytes) -> None:
        if path.startswith(self._ledger) and path.endswith(".json"):
            self.reference.recorded(path, data)
        if not path.startswith(self._sink):
            return
        name = path.removeprefix(self._sink)
        self._shown.add(name)
        expected = self.reference.files
        if name not in expected:
            self.breaks("E1", f"{name} has appeared, which a run without faults does not have")
        elif not self.cluster.resource.arrival and data != expected[name]:
            self.breaks("E1", f"{name} holds {data[:200]!r} in place of {expected[name][:200]!r}")

    # -- records --------------------------------------------------------------------------------------------------------

    def _progress(self) -> None:
        """F1: only the newest driver speaks."""
        report, newest = self.cluster.record(paths.PROGRESS), self.cluster.record(paths.DRIVER)
        if report is not None and str(report["driver"]) != str(newest):
            self.breaks("F1", f"driver {report['driver']} has written progress; the newest is {newest}")
        for problem in report["problems"] if report is not None else ():  # type: ignore[attr-defined]
            if "is not identical" in problem:
                self.breaks("E1", problem)

    def _wanted(self) -> None:
        """One decision after the other, on generations that never go back."""
        now, before = self.cluster.record(paths.DESIRED), self._desired
        self._desired = now
        if now is None or before is None:
            return
        if now["seq"] != before["seq"] + 1:
            self.breaks("sequence", f"desired state {now['seq']} follows {before['seq']}")
        if now["generation"] < before["generation"]:
            self.breaks("generation", f"{now['generation']} follows {before['generation']}")
        if now.get("retain") and self.cluster.record(paths.INCIDENT) is None and not now.get("moving"):
            self.breaks("M1", "output is buffered without an incident")

    def _incident(self) -> None:
        """E2: an incident is closed when everything is at work, and once."""
        if self.cluster.record(paths.INCIDENT) is not None:
            return
        report = self.cluster.record(paths.PROGRESS)
        if report is not None and report["failed"] and self._desired is not None:
            same = report["seq"] == self._desired["seq"] and str(report["driver"]) == self._desired["driver"]
            old = all(text.startswith("node lost") for text in map(str, report["failed"].values()))  # type: ignore[attr-defined]
            if same and not old:
                self.breaks("E2", f"the incident is closed, and {report['failed']} failed")

    # -- the end ----------------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """All output is there, and nothing of a recovery is left."""
        if not self.reference.complete or len(self._shown) < len(self.reference.files):
            return False
        desired, report = self._desired, self.cluster.record(paths.PROGRESS)
        if desired is None or report is None:
            return False
        at_work = len(desired["assignment"]) == len(report["positions"]) and not report["failed"]  # type: ignore[arg-type]
        return at_work and not desired.get("retain") and self.cluster.record(paths.INCIDENT) is None

    def finish(self, done: bool) -> None:
        """Check at the end of the run that all output is there, with the bytes that it must have, and is there still."""
        output, expected = self.cluster.output(), self.reference.files
        if done and self.cluster.resource.arrival:
            require_equal_rows(output, expected)
        elif done and output != expected:
            wrong = sorted(n for n in {**output, **expected} if output.get(n) != expected.get(n))
            raise Violation("E1", f"in the end {len(wrong)} files are missing or different: {wrong[:3]}")
        if done:
            return
        report = self.cluster.record(paths.PROGRESS) or {}
        missing = sorted(expected.keys() - output.keys())
        incident = self.cluster.record(paths.INCIDENT)
        shown = {
            name: report.get(name) for name in ("driver", "seq", "positions", "failed", "horizon", "problems")
        }
        raise Violation(
            "liveness",
            f"{len(missing)} files are missing ({missing[:3]}), incident {incident and incident.get('id')}, "
            f"desired {self._desired and {k: self._desired[k] for k in ('seq', 'driver', 'generation', 'assignment')}}, "
            f"report {shown}",
        )


def require_equal_rows(output: Mapping[str, bytes], expected: Mapping[str, bytes]) -> None:
    """Each row is there once, in some batch, and each count of a key once and in its turn: rows applied as they arrive.

    Both: file names with their bytes.  Violation of E1: it is not so.
    """
    if output.keys() != expected.keys():
        raise Violation("E1", f"files are missing or too many: {sorted(output.keys() ^ expected.keys())[:3]}")
    for partition in {name.rpartition("/")[0] for name in expected}:
        given, wanted = _rows_of(output, partition), _rows_of(expected, partition)
        rows, should = Counter((k, n) for k, n, _ in given), Counter((k, n) for k, n, _ in wanted)
        if rows != should:
            raise Violation(
                "E1", f"{partition}: {len(should - rows)} rows are missing, {len(rows - should)} too many"
            )
        counts = dict[int, int]()
        for key, _, seen in given:
            counts[key] = counts.get(key, 0) + 1
            if seen != counts[key]:
                raise Violation("E1", f"{partition}: key {key} counts {seen} in place of {counts[key]}")


def _rows_of(files: Mapping[str, bytes], partition: str) -> list[tuple[int, int, int]]:
    """Key, number and count of each row of `reprise.controller.simulated_world.operators.Counting`, batch by batch."""
    rows = list[tuple[int, int, int]]()
    for name in sorted(n for n in files if n.startswith(f"{partition}/") and files[n]):
        table = parquet.read_table(io.BytesIO(files[name]))
        rows += zip(*(table[column].to_pylist() for column in ("key", "n", "seen")), strict=True)
    return rows


_RECORDS = {
    paths.PROGRESS: Checks._progress,
    paths.DESIRED: Checks._wanted,
    paths.INCIDENT: Checks._incident,
}


class _Said(logging.Handler):
    """What the code itself says that nobody had foreseen."""

    def __init__(self, checks: Checks) -> None:
        super().__init__(logging.ERROR)
        self._checks = checks

    def emit(self, record: logging.LogRecord) -> None:
        if self._checks.cluster.world.closed:
            return
        if record.exc_info:
            self._checks.breaks("unforeseen", f"{record.getMessage()}: {record.exc_info[1]!r}")
        elif "InvariantViolation" in record.getMessage():
            self._checks.breaks("decision", record.getMessage())
