"""What must hold after every event of the world, and at its end (docs/simulated-world.md lists it with its sources)."""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pyarrow import parquet

from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.topology import LEDGER, Reference, repeats_rows
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.recovery_records import parse_incident
from reprise.spark_jobs.sinks.files import marked_by, marker
from reprise.spark_jobs.state.skips import SKIPPED


class Violation(Exception):
    """Something that must hold does not; `invariant` names it."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class Checks:
    """Watches one cluster."""

    def __init__(self, cluster: Cluster, reference: type[Reference] = Reference) -> None:
        self.cluster, self.reference = cluster, reference(cluster.resource)
        self._found: Violation | None = None
        self._seen: dict[str, int] = {}
        self._looked = -1
        self._desired: Mapping[str, Any] | None = None
        self._shown: set[str] = set()
        self.marks: dict[str, int] = {}
        """Files that say of a batch that it may lack rows, with the batch."""
        self._repeats = repeats_rows(cluster.resource)
        self._forgetful = any(operator.forgetful for operator in cluster.resource.operators)
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
        for invariant, detail in self.cluster.broken:
            self.breaks(invariant, detail)
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
        if (batch := marked_by(name.rpartition("/")[2])) is not None:
            self._mark(name, batch)
            return
        self._shown.add(name)
        expected = self.reference.files
        if name not in expected:
            self.breaks("E1", f"{name} has appeared, which a run without faults does not have")
        elif self._repeats and data != expected[name] and not self._is_marked(name):
            invariant = "H3" if self._forgetful else "E1"
            self.breaks(invariant, f"{name} holds {data[:200]!r} in place of {expected[name][:200]!r}")

    # -- H3: a gap is marked ----------------------------------------------------------------------------------------------

    def _is_marked(self, name: str) -> bool:
        """Whether it was said that a file of output may lack rows, before it was there."""
        return f"{name.rpartition('/')[0]}/{marker(_batch(name))}" in self.marks

    def _mark(self, name: str, batch: int) -> None:
        """A batch is marked that was put on record before."""
        partition = _partition(name)
        records = self.cluster.store.below(f"checkpoints/{SKIPPED}")
        skips = [skip for record in records.values() for skip in json.loads(record)]
        spans = [skip["marked"][partition] for skip in skips if partition in skip["marked"]]
        if not any(first <= batch <= last for first, last in spans):
            self.breaks("H3", f"{name} is marked, and on record is {spans}")
        self.marks[name] = batch

    def _say_gaps(self) -> None:
        """Each batch that is marked is in an incident, and no incident names another one."""
        tree = self.cluster.ensemble.tree
        names = [n for n in tree.znodes if n.startswith(f"{self.cluster.root}/{paths.INCIDENTS}/")]
        incidents = [parse_incident(tree.znodes[name].data) for name in names]
        for name, batch in sorted(self.marks.items()):
            partition = _partition(name)
            spans = [span for incident in incidents for span in incident.marked.get(partition, ())]
            if not any(first <= batch <= last for first, last in spans):
                raise Violation("H3", f"{name} is marked, and incidents name {spans}")
        named = [(p, spans) for incident in incidents for p, spans in incident.marked.items()]
        for name in sorted(self._shown):
            partition, batch = _partition(name), _batch(name)
            said = [spans for p, spans in named if p == partition and any(a <= batch <= b for a, b in spans)]
            if said and not self._is_marked(name):
                raise Violation("H3", f"{name} is not marked, and incidents name {said}")

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
            failed = (Failure.parse(str(text)) for text in report["failed"].values())  # type: ignore[attr-defined]
            old = all(failure.kind is FailureKind.NODE_LOST for failure in failed)
            if same and not old:
                self.breaks("E2", f"the incident is closed, and {report['failed']} failed")

    # -- the end ----------------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """All output is there, and nothing of a recovery is left."""
        if not self.reference.complete or len(self._shown) + len(self.marks) < len(self.reference.files):
            return False
        desired, report = self._desired, self.cluster.record(paths.PROGRESS)
        if (
            desired is None
            or report is None
            or self.reference.files.keys() - self._shown - self._lost(report)
        ):
            return False
        at_work = len(desired["assignment"]) == len(report["positions"]) and not report["failed"]  # type: ignore[arg-type]
        return at_work and not desired.get("retain") and self.cluster.record(paths.INCIDENT) is None

    def _lost(self, report: Mapping[str, Any]) -> set[str]:
        """Files of marked batches whose partitions are past them by a report, and of which no row is left: where output does
        not go to files, nothing can be seen of them but their marks."""
        elsewhere = {o.name for o in self.cluster.resource.operators if o.output and o.output.sink}
        return {
            name
            for name in self.reference.files.keys() - self._shown
            if name.partition("/")[0] in elsewhere
            and self._is_marked(name)
            and report["positions"].get(_partition(name), 0) >= _batch(name)
        }

    def finish(self, done: bool) -> None:
        """Check at the end of the run that all output is there, with the bytes that it must have, and is there still."""
        output, expected = self.cluster.output(), self.reference.files
        output = {name: data for name, data in output.items() if name not in self.marks}
        if done:
            self._say_gaps()
        wrong = list[str]()
        if done and not self._repeats:
            require_equal_rows(output, expected)
            if not self.cluster.resource.arrival:
                require_one_try(output, expected)
        elif done and output != expected:
            wrong = sorted(n for n in {**output, **expected} if output.get(n) != expected.get(n))
            lost = self._lost(self.cluster.record(paths.PROGRESS) or {"positions": {}})
            there = output.keys() & expected.keys() | lost
            wrong = [n for n in wrong if n not in there or not self._is_marked(n)]
        if wrong:
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


def _batch(name: str) -> int:
    return int(name.rpartition("/")[2].removeprefix("batch-").partition(".")[0])


def _partition(name: str) -> str:
    """Whose file it is."""
    return name.rpartition("/")[0].replace("/", ".")


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


def require_one_try(output: Mapping[str, bytes], expected: Mapping[str, bytes]) -> None:
    """Each row is in its batch, and all that is shown is of one try of each batch: of one that was made again other numbers
    were drawn (`reprise.controller.simulated_world.kinds.Drawing`).  Violation of E1: it is not so."""
    drawn = {"count": set[tuple[int, ...]](), "best": set[tuple[int, ...]]()}
    for partition in sorted({name.rpartition("/")[0] for name in expected}):
        last = dict[int, int]()
        for name in sorted(n for n in expected if n.startswith(f"{partition}/")):
            rows, wanted = (_table_of(files[name]) for files in (output, expected))
            if sorted((r["key"], r["n"]) for r in rows) != sorted((r["key"], r["n"]) for r in wanted):
                raise Violation("E1", f"{name} has rows of another batch")
            for row in rows:
                key = row["key"]
                if row.get("before", last.get(key, 0)) != last.get(key, 0):
                    raise Violation("E1", f"{name}: a row of key {key} goes on from a row that is not shown")
                last[key] = row["drawn"]
                drawn[partition.partition("/")[0]].add((key, row["n"], row["drawn"]))
    if drawn["count"] != drawn["best"]:
        raise Violation(
            "E1", f"two outputs are of different tries: {sorted(drawn['count'] ^ drawn['best'])[:3]}"
        )


def _table_of(data: bytes) -> list[dict[str, Any]]:
    return parquet.read_table(io.BytesIO(data)).to_pylist() if data else []


def _rows_of(files: Mapping[str, bytes], partition: str) -> list[tuple[int, int, int]]:
    """Key, number and count of each row of `reprise.controller.simulated_world.operators.Counting`, batch by batch."""
    names = sorted(name for name in files if name.startswith(f"{partition}/"))
    return [(row["key"], row["n"], row["seen"]) for name in names for row in _table_of(files[name])]


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
