"""The folder of a run: what is where, who may use it, and the record `run.json`.

Invariant: a folder belongs to one topology and to one process at a time; results of an earlier run are continued
(`resume`) or left alone, never mixed with new ones.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprise.controller.agent.processes import inspect
from reprise.controller.local.errors import OutDirError
from reprise.controller.status.actions import QUERIES_CHANGED
from reprise.spark_jobs.errors import CheckpointError, SpecError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.graphs import graph_on_record
from reprise.spark_jobs.state.revision import (
    Difference,
    differences,
    different,
    former_revision_of,
    made_by_another,
    revision_of,
)
from reprise.spark_jobs.state.start_from import require_begun_so, savepoint_of
from reprise.spark_jobs.topology import StreamTopology, from_json, to_json
from reprise.spark_jobs.topology.changes import require_queries_alone

MOST_LISTED = 5
"""Fields that a refusal names."""
LAST = "last.json"
"""How everything stood when the run ended."""
KEPT_PER_ATTEMPT = ("run.json", "incident.json", "plans.json", LAST)


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below OUT."""

    out: Path
    location: str
    """Where checkpoints are: the resource's, or a folder of OUT."""

    @property
    def topology(self) -> Path:
        return self.out / "topology.json"

    @property
    def sink(self) -> Path:
        return self.out / "sink"

    @property
    def events(self) -> Path:
        return self.out / "events.jsonl"

    @property
    def record(self) -> Path:
        return self.out / "run.json"

    @property
    def incident(self) -> Path:
        return self.out / "incident.json"

    @property
    def plans(self) -> Path:
        return self.out / "plans.json"

    @property
    def last(self) -> Path:
        return self.out / LAST

    @property
    def plot(self) -> Path:
        """Without suffix."""
        return self.out / "queries"

    def log(self, name: str) -> Path:
        return self.out / "logs" / f"{name}.log"


def layout_of(out: Path, resource: StreamTopology) -> Layout:
    """The layout, nothing is touched."""
    return Layout(out, resource.checkpoint.location or str((out / "checkpoints").resolve()))


def prepare(out: Path, resource: StreamTopology, resume: bool) -> Layout:
    """Make or check the folder.  OutDirError when it holds another run, or another process works in it."""
    layout = layout_of(out, resource)
    before = read_record(out)
    if before is not None and is_running(before):
        raise OutDirError(f"--out: {out} is in use by process {before['pid']}")
    if resume:
        _check_same(layout, resource)
        require_begun_so(resource, layout.location)
        _keep_attempt(out)
    elif layout.topology.exists() or layout.sink.exists() or before is not None:
        raise OutDirError(
            f"--out: {out} holds an earlier run; choose another folder, or continue with `reprise run --resume`"
        )
    else:
        savepoint_of(resource)  # what does not fit is said before anything is made
    try:
        (out / "logs").mkdir(parents=True, exist_ok=True)
        layout.sink.mkdir(exist_ok=True)
        write_atomically(layout.topology, to_json(resource))
    except OSError as error:
        raise OutDirError(f"--out: {out} cannot be used: {error}") from error
    return layout


def _check_same(layout: Layout, resource: StreamTopology) -> None:
    """The same graph: checkpoints and offsets mean nothing to another one."""
    if not layout.topology.exists():
        raise OutDirError(f"--out: {layout.out} holds no run to resume (no topology.json)")
    now = _graph(to_json(resource))
    try:
        before = _graph(layout.topology.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise OutDirError(f"--resume: {layout.topology}: not the topology of a run: {error!r}") from error
    if before["name"] != now["name"]:
        raise OutDirError(
            f"--resume: metadata.name was {before['name']!r} in the run in {layout.out} and is {now['name']!r}: what is "
            f"there is another topology's. {_BEGIN_ANEW.format(out=layout.out)}"
        )
    parts = ("sources", "operators")
    found = [one for part in parts for one in different(part, before[part], now[part])]
    if found and not _queries_alone(layout, resource):
        raise OutDirError(
            f"--resume: the graph is not that of the run in {layout.out}: {_listed(found)}. Checkpoints and positions of "
            f"sources mean nothing to another graph. {_BEGIN_ANEW.format(out=layout.out)}"
        )
    _check_code(layout, resource)


def _queries_alone(layout: Layout, resource: StreamTopology) -> bool:
    """Whether only queries come and go, which the driver takes over where the stream has drained; `_check_code` says where
    it has not."""
    try:
        before = from_json(layout.topology.read_text(encoding="utf-8", errors="replace"))
        require_queries_alone(before, resource)
        return graph_on_record(layout.location) is not None
    except (OSError, SpecError, CheckpointError):
        return False


def _check_code(layout: Layout, resource: StreamTopology) -> None:
    """What the driver would say after it was started: no batch that may have been shown is made again by other code."""
    if resource.upgrade == "replay":
        return
    try:
        complete = CheckpointStore(layout.location, resource.checkpoint.standby).positions()
        newest = max(complete, default=0)
        shown = made_by_another(layout.location, newest, revision_of(resource), former_revision_of(resource))
    except CheckpointError:  # the driver waits for its store, and says what is damaged
        return
    if shown is None:
        return
    raise OutDirError(
        f"--resume: {_changed(layout, resource)} since the run in {layout.out}, whose batches after checkpoint "
        f"{newest} (up to {shown} at most) may have been shown and would come out differently.  Go on with the former "
        f"topology ({layout.topology}) until the stream has ended, set `upgrade: replay` in the spec to make them anew, or "
        "give another --out"
    )


_BEGIN_ANEW = (
    "Go on with the former topology, take a savepoint (`reprise savepoint NAME --out {out}`), and begin from that in "
    "another folder: `reprise run --from-savepoint`"
)


def _changed(layout: Layout, resource: StreamTopology) -> str:
    try:
        before = from_json(layout.topology.read_text(encoding="utf-8", errors="replace"))
        return _listed(differences(before, resource)) or "the topology changed"
    except (OSError, SpecError):
        return "the topology changed"


def _listed(found: list[Difference]) -> str:
    more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return "; ".join(map(str, found[:MOST_LISTED])) + more


def _graph(document: str) -> dict[str, Any]:
    """Whose partitions there are and who reads whom: what checkpoints and offsets rest on.  Nothing else is read, as
    another version may have written the rest.  ValueError, RecursionError, KeyError, TypeError or AttributeError for what is
    no topology."""
    topology = json.loads(document)
    found: dict[str, Any] = {"name": topology["metadata"]["name"]}
    for part in ("sources", "operators"):
        items = topology["spec"].get(part, [])
        # by name: in which order they are written says nothing
        found[part] = sorted(
            ({k: x.get(k) for k in ("name", "parallelism", "inputs")} for x in items), key=_name
        )
    return found


def _name(item: dict[str, Any]) -> str:
    return str(item["name"])


def _keep_attempt(out: Path) -> None:
    """Rename the records of the attempt before to `<name>-<n>.json`."""
    number = 1
    while (out / f"run-{number}.json").exists():
        number += 1
    for name in KEPT_PER_ATTEMPT:
        if (out / name).exists():
            (out / name).rename(out / name.replace(".json", f"-{number}.json"))


def read_record(out: Path, name: str = "run.json") -> dict[str, Any] | None:
    """`run.json`, or that of an earlier attempt; None when there is none.  OutDirError when it is damaged."""
    try:
        found = json.loads((out / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise OutDirError(f"{out / name}: not a run record: {error}") from error
    if not isinstance(found, dict):
        raise OutDirError(f"{out / name}: not a run record")
    return found


def queries_changed(out: Path) -> bool:
    """Whether queries came or went in any attempt of the run.  OutDirError as in `read_record`."""
    attempts = (read_record(out, path.name) for path in out.glob("run*.json"))
    return any(
        one["action"] == QUERIES_CHANGED for found in attempts if found for one in found.get("actions", ())
    )


def is_running(record: dict[str, Any]) -> bool:
    """Whether the process that wrote the record still lives and has not finished."""
    pid = record.get("pid")
    process = inspect(pid) if isinstance(pid, int) else None
    alive = process is not None and process.started == record.get("pid_started")
    return alive and record.get("outcome") == "running" and pid != os.getpid()


def new_record(resource: StreamTopology, **more: Any) -> dict[str, Any]:
    """The beginning of `run.json`."""
    me = inspect(os.getpid())
    return {
        "topology": resource.name,
        "namespace": resource.namespace,
        "strategy": resource.recovery.strategy,
        "nodes": resource.nodes.count,
        "outcome": "running",
        "pid": os.getpid(),
        "pid_started": me.started if me else None,
        "started": time.time(),
        "actions": [],
        **more,
    }


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all: `status` reads while a run writes."""
    write_atomically(path, json.dumps(value, indent=1) + "\n")


def write_atomically(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
