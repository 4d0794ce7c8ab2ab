"""Runs on a real cluster against the definition of the output: the checker of all end-to-end tests.

A scenario is a topology, a number of nodes and a fault schedule.  Its verdict is always the same: every output partition has
exactly one file for every batch, with the bytes that `reprise.spark_jobs.operators.local` says.

A test that waits for something, which takes as long as it takes on a busy machine, has a stream without an end
(`without_end`), which `run` ends once that was seen: `until`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report.compare import compare
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.controller.local.run.supervisor import Watcher, run_topology
from reprise.controller.status.actions import BREAKS, FaultAction
from reprise.controller.status.query_state import RunState, Status
from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import FileSink
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from tests.support.recovery_budget import Watch, assert_in_time
from tests.support.straggling import EndsWhenTold, NexmarkEndsWhenTold, end_stream
from tests.support.told_cluster import PATIENT_S, ToldCluster

log = logging.getLogger("tests.e2e")
PROJECT = Path(__file__).parents[2]
BATCHES = 40
STUCK_LOOKS = 900
"""A run in which nothing changes for so many looks, five a second on an idle machine, hangs."""
ENDS_AFTER = 12
"""So many batches of a stream without an end come behind what it was to wait for."""
ENDLESS = {"HashtagSource": EndsWhenTold, "NexmarkSource": NexmarkEndsWhenTold}
"""Sources without an end instead of those that examples have."""
NOTICED_S = 8.0
"""A loss is noticed within this time: the session of a node has expired, and the coordinator has looked."""

Seen = Callable[[RunState, list[dict[str, Any]]], bool]
"""Whether all that a test waits for has happened: state and actions of a run."""


RACK = "rack"
"""Label of the nodes of a cluster: two are in one, the next two in the other, and so on.  So standbys that are placed
without a look at it are not all in another one than their partitions."""


def cluster(nodes: int, cpu_milli: int = 200) -> ToldCluster:
    """A cluster for scenarios, whose nodes announce `cpu_milli` and are in two racks; runs change how many there are.

    Plans count the greater of what is declared and what is measured.  So a test that says which queries a plan brings back
    takes large nodes, and declares far more than partitions use."""
    return ToldCluster(
        ClusterConfig(
            nodes=nodes,
            cpu_milli=cpu_milli,
            session_timeout_ms=round(1000 * PATIENT_S),
            labels={RACK: ("one", "one", "other", "other")},
            start_timeout_s=300.0,
        )
    )


def topology2(nodes: int = 10, **more: Any) -> StreamTopology:
    """Topology 2 of Su and Zhou (15 queries), slowed down to what a test needs."""
    changes: dict[str, Any] = {
        "sources[source].with.batches": BATCHES,
        "sources[source].with.rate": 100,
        "nodes.count": nodes,
        "checkpoint.interval": "4s",
    }
    return override(load_topology("examples/topology2.yaml"), changes | more)


def without_end(resource: StreamTopology, folder: Path) -> StreamTopology:
    """The same topology over sources that go on until `run` has seen what it is to wait for.  Its definition
    (`write_expected`) is to be written behind the run, which says how many batches there are."""
    ends = folder / "last-batch"
    changes: dict[str, Any] = {}
    for source in resource.sources:
        given = {name: value for name, value in source.parameters.items() if name != "batches"}
        endless = ENDLESS[source.class_path.rpartition(":")[2]]
        changes[f"sources[{source.name}].class"] = f"{endless.__module__}:{endless.__name__}"
        changes[f"sources[{source.name}].with"] = {**given, "file": str(ends)}
    return override(resource, changes)


def quiet_again(faults: Sequence[Mapping[str, Any]]) -> Seen:
    """Whether all these have happened, with what ends those that last for a while; nothing that they broke is open any more,
    every query is available, and no partition is assigned to a node that was killed."""
    expected = len(faults) + sum("for" in fault for fault in faults)

    def seen(state: RunState, actions: list[dict[str, Any]]) -> bool:
        happened = [action for action in actions if action["action"] in get_args(FaultAction)]
        if len(happened) < expected:
            return False
        broken = max((action["time"] for action in happened if action["action"] in BREAKS), default=0.0)
        killed = {
            name for action in happened if action["action"] == "kill" for name in action.get("nodes", ())
        }
        desired = state.observation.desired
        hosts = {node.partition("#")[0] for node in desired.assignment.values()} if desired else set()
        return (
            state.observation.time > broken + NOTICED_S
            and state.observation.incident is None
            and killed.isdisjoint(hosts)
            and state.count(Status.AVAILABLE) == len(state.queries)
        )

    return seen


class _Ends:
    """Ends a stream `ENDS_AFTER` batches behind the moment in which something was seen."""

    def __init__(self, resource: StreamTopology, until: Seen, then: Watcher) -> None:
        [self._file] = {Path(source.parameters["file"]) for source in resource.sources}
        self._until, self._then = until, then

    def __call__(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        self._then(state, actions)
        if state.observation.progress is not None and not self._file.exists() and self._until(state, actions):
            end_stream(self._file, ENDS_AFTER)


def write_expected(resource: StreamTopology, folder: Path) -> Path:
    """The definition's output as sink files."""
    outputs = [o for o in resource.operators if o.output is not None]
    for number, rows in enumerate(run_local(resource), start=1):
        for operator in outputs:
            for index in range(operator.parallelism):
                place = Place(operator.name, index, operator.parallelism)
                assert operator.output is not None
                FileSink(folder / "sink", place, operator.output.format).write(number, rows[place.partition])
    return folder


def run(
    resource: StreamTopology,
    on: EmbeddedCluster,
    out: Path,
    faults: Sequence[Mapping[str, Any]],
    watch: Watcher = lambda _state, _actions: None,
    in_time: bool = False,
    until: Seen | None = None,
    **more: Any,
) -> RunResult:
    """One run on a cluster that is there; `watch` sees its state several times a second.  `in_time`: where it came to its
    end, what was lost meanwhile has to have come back in time (`tests.support.recovery_budget`).  `until`: ends the
    stream of a topology `without_end`."""
    if until is not None:
        watch = _Ends(resource, until, watch)
        more = {"python_path": str(PROJECT), **more}
    if isinstance(on, ToldCluster):
        on.let_sessions_expire(any("freeze" in fault for fault in faults))
        watch = _reports(on, watch)
    parsed = parse_faults([dict(f) for f in faults], "faults", resource.nodes.count)
    config = RunConfig(resource=resource, out=out, faults=parsed, timeout_s=None, cluster=on, **more)
    watching = Watch(_Stuck(watch, endless=until is not None))
    result = run_topology(config, watching)
    if in_time and result.ok and watching.seen is not None:
        for recovery in assert_in_time(watching.seen, watching.circumstances(result.record["actions"])):
            log.info("event=recovered %s", recovery)
    if result.ok:
        by_exchange = "event=exchange " in (result.out / "logs" / "driver.log").read_text(errors="replace")
        assert by_exchange == (resource.spark.exchange == "auto")
    return result


def survive(
    resource: StreamTopology,
    on: EmbeddedCluster,
    folder: Path,
    faults: Sequence[Mapping[str, Any]],
    **more: Any,
) -> RunResult:
    """The verdict on a stream that goes on until all these have happened and nothing is open any more."""
    endless = without_end(resource, folder)
    result = run(endless, on, folder / "out", faults, until=quiet_again(faults), **more)
    assert_exactly_once(result, write_expected(endless, folder / "expected"))
    return result


class _Stuck:
    """Ends a run in which nothing changes.  The batches of a stream without an end are no progress."""

    def __init__(self, then: Watcher, endless: bool) -> None:
        self._then, self._endless = then, endless
        self._last: object = None
        self._looks = 0

    def __call__(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        self._then(state, actions)
        seen = state.observation
        available = [query.id for query in state.queries if query.status is Status.AVAILABLE]
        phase = None if seen.incident is None else seen.incident.phase
        batch = None if self._endless or seen.progress is None else seen.progress.horizon
        now = (len(actions), available, sorted(seen.nodes), phase, batch)
        self._looks = self._looks + 1 if now == self._last else 0
        self._last = now
        assert self._looks < STUCK_LOOKS, f"nothing has changed for {STUCK_LOOKS} looks: {now}"


def _reports(on: ToldCluster, then: Watcher) -> Watcher:
    def watch(state: RunState, actions: list[dict[str, Any]]) -> None:
        on.report()
        then(state, actions)

    return watch


def assert_exactly_once(result: RunResult, expected: Path) -> None:
    """The verdict."""
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {result.out / 'logs'}"
    found = compare(expected, result.out)
    assert found.identical, (found.missing[:5], found.extra[:5], found.different[:5], found.twice[:5])
    assert found.equal > 0
    assert result.record["unfired"] == []


def writes(out: Path) -> list[dict[str, Any]]:
    """The lines of events.jsonl: query, batch, time of the write, time it was due."""
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
