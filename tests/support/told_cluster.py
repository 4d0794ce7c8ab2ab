"""An embedded cluster whose losses are reported and not timed out.

Problem: on a busy machine an agent may miss heartbeats for seconds, and with the short sessions that make tests fast that is
the loss of a node.  So sessions here are long, and whoever kills nodes removes their znodes, which is all that the expiry of
their sessions would do.  Nodes that are frozen need real expiry: `let_sessions_expire`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.zookeeper import node_record as node_tree
from reprise.controller.zookeeper.errors import ClientError, NoNodeError
from reprise.controller.zookeeper.node_record import SESSION_S

PATIENT_S = 20.0
"""Session of nodes that only SIGKILL ends: no busy machine starves an agent for so long.  After a restart of ZooKeeper or of
the coordinator nobody believes in a loss for as long."""


class ToldCluster(EmbeddedCluster):
    """`report` is called again for losses that ZooKeeper could not take at once."""

    _unreported: frozenset[str] = frozenset()

    @contextmanager
    def announcing(self, cpu_milli: int) -> Iterator[Self]:
        """Nodes that announce so much CPU, and those from before afterwards."""
        before = self.config.cpu_milli
        self._fit(replace(self.config, cpu_milli=cpu_milli))
        yield self
        self._fit(replace(self.config, cpu_milli=before))

    def let_sessions_expire(self, soon: bool) -> None:
        """Whether nodes have short sessions, which those that are frozen need, or patient ones."""
        timeout_s = SESSION_S if soon else PATIENT_S
        self._fit(replace(self.config, session_timeout_ms=round(1000 * timeout_s)))

    def _fit(self, config: ClusterConfig) -> None:
        """Kill nodes that are not like this; the next run starts as many as it needs."""
        if config != self.config:
            self.kill(self.nodes)
            self.config = config

    def kill(self, names: Iterable[str]) -> None:
        """SIGKILL to all processes of these nodes at once, and their znodes go."""
        names = list(names)
        super().kill(names)
        self._unreported |= frozenset(names)
        self.report()

    def report(self) -> None:
        """Remove the znodes of nodes that were killed, if ZooKeeper answers."""
        if not self._unreported or not self.zookeeper.alive:
            return
        client = self._client()
        try:
            roots = [node_tree.CONTROL, *map(node_tree.root_of, client.get_children(node_tree.ROOTS))]
            for path in (f"{node_tree.nodes_path(r)}/{name}" for r in roots for name in self._unreported):
                try:
                    client.delete(path)
                except NoNodeError:
                    continue
        except ClientError:
            return
        self._unreported = frozenset()
