"""Carrying faults out on a cluster, and the record of what really happened when.

Faults name nodes by their number in the run (`n3`: the third, `n11`: the first that arrived in a run of ten), which on
a cluster that has served other runs are not the cluster's names; `Roster` maps one to the other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.controller.errors import EmbeddedError, RunError
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.faults.faults import Fault
from reprise.controller.local.run.services import Service
from reprise.controller.status.actions import ARRIVED


def natural(name: str) -> tuple[str, int]:
    """Sort n2 before n10."""
    match = re.fullmatch(r"(.*?)(\d*)", name)
    assert match is not None
    return match[1], int(match[2] or 0)


@dataclass(slots=True)
class Roster:
    """The nodes of a run in the order of their arrival: number i is the one that faults call n<i>."""

    names: list[str]

    def actual(self, name: str) -> str:
        """RunError for a node that the run has not had."""
        number = natural(name)[1] if re.fullmatch(r"n[1-9]\d*", name) else 0
        if not 1 <= number <= len(self.names):
            raise RunError(f"no node {name} yet: the run has had n1 to n{len(self.names)}")
        return self.names[number - 1]


@dataclass(slots=True)
class Injector:
    """Carries out faults; `actions` is what goes into run.json."""

    cluster: EmbeddedCluster
    roster: Roster
    services: Mapping[str, Service]
    say: Callable[[dict[str, Any]], None]
    frozen: set[str] = field(default_factory=set)
    _later: list[tuple[float, Fault]] = field(default_factory=list)
    _awaited: dict[str, float] = field(default_factory=dict)

    def carry_out(self, fault: Fault, assignment: Mapping[str, str]) -> None:
        """Do it now.  What cannot be done (a node that is gone) is recorded, not raised: the run goes on."""
        began = time.time()
        try:
            details = self._do(fault, assignment)
        except (EmbeddedError, RunError) as error:
            details = {"error": str(error)}
        self.say({"time": began, "took": round(time.time() - began, 3), "action": fault.action, **details})

    def tick(self, assignment: Mapping[str, str]) -> None:
        """Ends of freezes and of ZooKeeper's absence."""
        due = [fault for at, fault in self._later if at <= time.time()]
        self._later = [(at, fault) for at, fault in self._later if at > time.time()]
        for fault in due:
            self.carry_out(fault, assignment)

    def arrived(self, living: Iterable[str]) -> None:
        """Record nodes that were added and are there now."""
        for name in set(living) & set(self._awaited):
            waited = time.time() - self._awaited.pop(name)
            self.say({"time": time.time(), "action": ARRIVED, "nodes": [name], "took": round(waited, 3)})

    def _do(self, fault: Fault, assignment: Mapping[str, str]) -> dict[str, Any]:
        match fault.action:
            case "add":
                names = [self.cluster.add_node() for _ in range(fault.count)]
                self.roster.names += names
                self._awaited |= dict.fromkeys(names, time.time())
                return {"nodes": names}
            case "crash":
                self._crash(fault)
                return {"target": fault.target}
            case "start":
                self.cluster.zookeeper.launch()
                return {"target": fault.target}
        names = self.resolve(fault.nodes, assignment)
        gone = [name for name in names if name not in self.cluster.nodes]
        names = [name for name in names if name not in gone]
        match fault.action:
            case "kill":
                self.cluster.kill(names)
                self.frozen -= set(names)
            case "notice":
                length = fault.for_s or 0.0
                self.cluster.notice(names, length)
                # those that were meant now: others may host what they hosted by then
                meant = tuple(f"n{self.roster.names.index(name) + 1}" for name in names)
                self._later.append((time.time() + length, Fault(fault.trigger, "kill", meant)))
            case "freeze":
                self.cluster.freeze(names)
                self.frozen |= set(names)
                if fault.for_s is not None:
                    self._later.append((time.time() + fault.for_s, Fault(fault.trigger, "thaw", fault.nodes)))
            case "thaw":
                self.cluster.thaw(names)
                self.frozen -= set(names)
        return {"nodes": names, **({"gone_before": gone} if gone else {})}

    def _crash(self, fault: Fault) -> None:
        if fault.target == "zookeeper":
            self.cluster.zookeeper.kill()
            back = Fault(fault.trigger, "start", target="zookeeper")
            self._later.append((time.time() + (fault.for_s or 0.0), back))
        else:
            self.services[fault.target].crash()

    def resolve(self, names: Iterable[str], assignment: Mapping[str, str]) -> list[str]:
        """Names of the cluster; `@operator` and `@operator.index` become the nodes that host those partitions."""
        found: dict[str, None] = {}
        for name in names:
            if not name.startswith("@"):
                found[self.roster.actual(name)] = None
                continue
            wanted = name[1:]
            hosts = [n for p, n in assignment.items() if p == wanted or p.rpartition(".")[0] == wanted]
            if not hosts:
                raise RunError(f"no node hosts {wanted} now")
            found |= dict.fromkeys(host.rpartition("#")[0] for host in hosts)
        return sorted(found, key=natural)
