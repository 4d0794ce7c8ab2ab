"""A run on this machine that has ended, as it stood at its end: for questions alone, as nobody is left to be told.

What is answered is what was known last, so `connected` is false in it; each command says on standard error when that was.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import click

from reprise.controller.cli import exits
from reprise.controller.cli.live import action_text
from reprise.controller.cli.render import span
from reprise.controller.errors import ReportError
from reprise.controller.local.report.layout import LAST, read_record
from reprise.controller.status import StatusDocument, document, observation
from reprise.controller.topology_view import with_promises
from reprise.controller.utc import utc
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.topology import StreamTopology, from_json
from reprise.spark_jobs.topology.changes import in_effect

LAST_ACTIONS = 4


@dataclass(slots=True)
class EndedTarget:
    """Read on entry.  `why_not`: what is said where something is asked for that takes a run that goes on."""

    out: Path
    why_not: str
    clock: Callable[[], float] = time.time
    _resource: StreamTopology = field(init=False)
    _seen: Observation = field(init=False)
    _said: str = ""

    def __enter__(self) -> EndedTarget:
        path = self.out / LAST
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            settings, records = dict(found["settings"] or {}), json.dumps(found["records"]).encode()
            started = from_json((self.out / "topology.json").read_text(encoding="utf-8"))
            seen = observation(records, str(path))
        except (OSError, ValueError, KeyError, TypeError, RecursionError, RecordError, SpecError) as error:
            raise ReportError(f"{path}: not the last state of a run: {error!r}") from error
        record = read_record(self.out) or {}
        ended = seen.time
        with contextlib.suppress(KeyError, TypeError, ValueError):
            ended = float(record["ended"])
        if not math.isfinite(ended):
            ended = seen.time
        ago = span(max(0.0, self.clock() - ended))
        when = f"{ago} ago at {utc(ended):%Y-%m-%d %H:%M:%S} UTC"
        self._said = f"the run has ended ({record.get('outcome')}), {when}: this is its last state"
        self._resource = in_effect(started, settings)
        self._seen = replace(seen, connected=False, problems=(self._said, *seen.problems))
        click.echo(self._said, err=True)
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def resource(self) -> StreamTopology:
        return self._resource

    def document(self) -> StatusDocument:
        return document(with_promises(self._resource), self._seen)

    def observation(self) -> Observation:
        return self._seen

    def resources(self) -> dict[str, Any] | None:
        return None

    def actions(self) -> list[str]:
        record = read_record(self.out) or {}
        return [action_text(action) for action in record.get("actions", [])[-LAST_ACTIONS:]]

    def is_over(self) -> bool:
        return True

    def files(self) -> dict[str, bytes]:
        return {}

    def pause(self, paused: bool) -> str:
        self._refuse()

    def drain(self, node: str, wanted: bool) -> str:
        self._refuse()

    def skip(self, query: str, wanted: bool) -> str:
        self._refuse()

    def savepoint(self, wish: SavepointWish) -> str:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise exits.NotRunningError(self.why_not)
