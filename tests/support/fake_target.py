"""A topology as the command line reaches it, in memory: what it shows is given, and what is asked of it is kept."""

from __future__ import annotations

from typing import Any

from reprise.controller.status import StatusDocument, document
from reprise.controller.topology_view import with_promises
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import StreamTopology


class FakeTarget:
    """Shows one observation after the other, the last one for ever."""

    def __init__(self, resource: StreamTopology, *shown: Observation) -> None:
        self._resource, self._shown, self._over = resource, list(shown), False
        self.asked: list[tuple[str, bool]] = []
        """Of which node or query something was wanted, and whether it was taken back (False)."""

    def __enter__(self) -> FakeTarget:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def resource(self) -> StreamTopology:
        return self._resource

    def observation(self) -> Observation:
        self._over = len(self._shown) == 1
        return self._shown[0] if self._over else self._shown.pop(0)

    def document(self) -> StatusDocument:
        return document(with_promises(self._resource), self.observation())

    def resources(self) -> dict[str, Any] | None:
        return None

    def actions(self) -> list[str]:
        return []

    def is_over(self) -> bool:
        """Nothing comes after the last observation."""
        return self._over

    def drain(self, node: str, wanted: bool) -> str:
        return self._ask(node, wanted)

    def skip(self, query: str, wanted: bool) -> str:
        return self._ask(query, wanted)

    def _ask(self, of: str, wanted: bool) -> str:
        self.asked.append((of, wanted))
        return "written"
