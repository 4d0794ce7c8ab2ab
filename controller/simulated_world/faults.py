"""Faults by name, and schedules of them drawn from a seed.

Each seed draws which kinds of faults it has at all before it draws the faults (swarm testing, Groce et al., ISSTA
2012): a schedule with few kinds goes deeper into each than one that has a little of everything.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.core import Process
from reprise.controller.simulated_world.nodes import GRACE_S
from reprise.controller.zookeeper.leaving import encode_leaving
from reprise.controller.zookeeper.node_record import leaving_path
from reprise.controller.zookeeper.paths import COORDINATOR
from reprise.scheduler.model import Leaving

_COMPLETE = re.compile(r"/checkpoints/cp-\d+/COMPLETE\.[^/]+$")
"""Manifests (`reprise.spark_jobs.state.checkpoints`)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What breaks at virtual second `at`; `which`: the target, counted through those that there are; `seconds`: how long it
    lasts."""

    at: float
    kind: str
    which: int = 0
    seconds: float = 0.0


def node_dies(cluster: Cluster, fault: Fault) -> bool:
    """The machine of one node is gone, and boots again after a while."""
    return _die(cluster, [_name(cluster, fault.which)], fault.seconds)


def rack_dies(cluster: Cluster, fault: Fault) -> bool:
    """All machines of a rack are gone at once; they boot again one by one."""
    racks = sorted({machine.rack for machine in cluster.machines.values()})
    rack = racks[fault.which % len(racks)]
    return _die(cluster, [m.name for m in cluster.machines.values() if m.rack == rack], fault.seconds)


def _die(cluster: Cluster, names: Iterable[str], seconds: float) -> bool:
    living = [machine for machine in map(cluster.machines.__getitem__, names) if machine.alive]
    for number, machine in enumerate(living):
        machine.die()
        cluster.world.call(seconds * (1 + number / 3), partial(_boot, cluster, machine.name))
    cluster.ensemble.look()
    return bool(living)


def _boot(cluster: Cluster, name: str) -> None:
    if not cluster.machines[name].alive:
        cluster.add(name)


def node_stops(cluster: Cluster, fault: Fault) -> bool:
    """Everything on one node is stopped for a while."""
    machine = cluster.machines[_name(cluster, fault.which)]
    if not machine.alive or machine.stopped:
        return False
    machine.freeze_all()
    cluster.world.call(fault.seconds, machine.thaw_all)
    return True


def executor_dies(cluster: Cluster, fault: Fault) -> bool:
    """One executor dies alone; its node stays."""
    living = [p for m in cluster.machines.values() for p in m.executors if p.alive]
    if living:
        cluster.world.kill(living[fault.which % len(living)])
    return bool(living)


def node_drains(cluster: Cluster, fault: Fault) -> bool:
    """Somebody asks for a node to be emptied, and takes the wish back after a while."""
    name = _name(cluster, fault.which)
    path = leaving_path(cluster.root, name)
    if path in cluster.ensemble.tree.znodes:
        return False
    cluster.world.note(f"{name} is to be emptied")
    cluster.ensemble.tree.put(path, encode_leaving(Leaving("reprise drain")))
    cluster.world.call(fault.seconds, partial(_undrain, cluster, name))
    return True


def _undrain(cluster: Cluster, name: str) -> None:
    if (path := leaving_path(cluster.root, name)) in cluster.ensemble.tree.znodes:
        cluster.world.note(f"{name} may be used again")
        cluster.ensemble.tree.remove(path)


def node_leaves(cluster: Cluster, fault: Fault) -> bool:
    """A node has notice of its end, which comes, and boots again after a while."""
    machine = cluster.machines[_name(cluster, fault.which)]
    left = machine.leave()
    if left:
        cluster.world.call(GRACE_S + fault.seconds, partial(_boot, cluster, machine.name))
    return left


def driver_dies(cluster: Cluster, fault: Fault) -> bool:
    return _kill(cluster, _driver(cluster, fault))


def driver_stops(cluster: Cluster, fault: Fault) -> bool:
    return _stop(cluster, _driver(cluster, fault), fault.seconds)


def driver_given_up(cluster: Cluster, fault: Fault) -> bool:
    """The driver is stopped, another one is started in its place, and the first goes on beside it."""
    stopped = _stop(cluster, _driver(cluster, fault), fault.seconds)
    cluster.world.call(fault.seconds / 2, cluster.begin_driver)
    return stopped


def second_driver(cluster: Cluster, fault: Fault) -> bool:
    """Another driver is started though the one before lives."""
    beside = any(process.alive for process in cluster.drivers)
    cluster.begin_driver()
    return beside


def coordinator_dies(cluster: Cluster, fault: Fault) -> bool:
    return _kill(cluster, _coordinator(cluster, fault))


def coordinator_stops(cluster: Cluster, fault: Fault) -> bool:
    return _stop(cluster, _coordinator(cluster, fault), fault.seconds)


def coordinator_displaced(cluster: Cluster, fault: Fault) -> bool:
    """Somebody removes the leader's znode, and another coordinator takes its place: both act for a moment."""
    path = f"{cluster.root}/{COORDINATOR}"
    cluster.second_coordinator()
    led = path in cluster.ensemble.tree.znodes
    if led:
        cluster.ensemble.tree.remove(path)
    return led


def coordinator_overtaken(cluster: Cluster, fault: Fault) -> bool:
    """The leader is stopped between what it has read and what it writes, now or a few decisions later, its znode is
    removed, and another coordinator decides; the first one goes on, with its session, and writes."""
    cluster.second_coordinator()
    leader = next(
        (c for c in cluster.ensemble.clients if c.process in cluster.leading and c.leads(cluster.root)), None
    )
    if leader is None:
        return False

    passes = fault.which % 4

    def stops() -> None:
        nonlocal passes
        passes -= 1
        if passes >= 0:
            leader.before_commit = stops
        elif coordinator_displaced(cluster, fault):
            _stop(cluster, leader.process, fault.seconds)

    leader.before_commit = stops
    return True


def zookeeper_away(cluster: Cluster, fault: Fault) -> bool:
    if cluster.ensemble.away:
        return False
    cluster.ensemble.leave()
    cluster.world.call(fault.seconds, cluster.ensemble.come_back)
    return True


def connection_breaks(cluster: Cluster, fault: Fault) -> bool:
    """One client's connection with ZooKeeper breaks, and is made again at once."""
    clients = [c for c in cluster.ensemble.clients if c.process.alive and not c.process.stopped and c.begun]
    if clients:
        client = clients[fault.which % len(clients)]
        cluster.world.note(f"{client.process.name} loses its connection")
        client.break_connection()
    return bool(clients)


def cut_off(cluster: Cluster, fault: Fault) -> bool:
    """One process reaches ZooKeeper no more for a while; it reaches everything else."""
    processes = [c.process for c in cluster.ensemble.clients if c.process.alive and c.begun]
    if processes:
        process = processes[fault.which % len(processes)]
        cluster.world.note(f"{process.name} is cut off from ZooKeeper")
        cluster.ensemble.isolate(process)
        cluster.world.call(fault.seconds, partial(cluster.ensemble.heal, process))
    return bool(processes)


def falls_behind(cluster: Cluster, fault: Fault) -> bool:
    """One process is connected to a ZooKeeper server that is behind the others for a while."""
    clients = [c for c in cluster.ensemble.clients if c.process.alive and not c.process.stopped and c.begun]
    if clients:
        client, lag_s = clients[fault.which % len(clients)], cluster.world.between(0.3, 4.0)
        cluster.world.note(f"{client.process.name} reads what was true {lag_s:.1f} s ago")
        client.fall_behind(lag_s)
        cluster.world.call(fault.seconds, client.be_up_to_date)
    return bool(clients)


def store_slow(cluster: Cluster, fault: Fault) -> bool:
    cluster.store.slow = True
    cluster.world.call(fault.seconds, partial(setattr, cluster.store, "slow", False))
    return True


def store_refuses(cluster: Cluster, fault: Fault) -> bool:
    cluster.store.refuses = 0.4
    cluster.world.call(fault.seconds, partial(setattr, cluster.store, "refuses", 0.0))
    return True


def state_torn(cluster: Cluster, fault: Fault) -> bool:
    """A state of the newest complete checkpoint loses its second half, where there is an older one to go back to."""
    below = f"{cluster.store.name}/checkpoints/"
    complete = sorted({p.rpartition("/")[0] for p in cluster.store.files if _COMPLETE.search(p)})
    if len(complete) < 2:
        return False
    states = sorted(
        p for p in cluster.store.files if p.startswith(f"{complete[-1]}/") and not _COMPLETE.search(p)
    )
    if not states:
        return False
    torn = states[fault.which % len(states)]
    cluster.store.files[torn] = cluster.store.files[torn][: len(cluster.store.files[torn]) // 2]
    cluster.world.note(f"{torn.removeprefix(below)} is torn")
    return True


def _name(cluster: Cluster, which: int) -> str:
    names = sorted(cluster.machines)
    return names[which % len(names)]


def _driver(cluster: Cluster, fault: Fault) -> Process | None:
    living = [p for p in cluster.drivers if p.alive]
    return living[fault.which % len(living)] if living else None


def _coordinator(cluster: Cluster, fault: Fault) -> Process | None:
    living = [p for p in cluster.coordinators.values() if p.alive]
    return living[fault.which % len(living)] if living else None


def _kill(cluster: Cluster, process: Process | None) -> bool:
    if process is None:
        return False
    cluster.world.kill(process)
    cluster.ensemble.look()
    return True


def _stop(cluster: Cluster, process: Process | None, seconds: float) -> bool:
    if process is None or process.stopped:
        return False
    cluster.world.note(f"{process.name} is stopped")
    cluster.world.stop(process)
    cluster.ensemble.look()
    cluster.world.call(seconds, partial(_go_on, cluster, process))
    return True


def _go_on(cluster: Cluster, process: Process) -> None:
    if process.alive and process.stopped:
        cluster.world.note(f"{process.name} goes on")
        cluster.world.go_on(process)
        cluster.ensemble.look()


KINDS: Mapping[str, Callable[[Cluster, Fault], bool]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        node_dies, rack_dies, node_stops, node_drains, node_leaves, executor_dies,
        driver_dies, driver_stops, driver_given_up, second_driver,
        coordinator_dies, coordinator_stops, coordinator_displaced, coordinator_overtaken, zookeeper_away,
        connection_breaks, cut_off, falls_behind, store_slow, store_refuses, state_torn,
    )
}  # fmt: skip
"""What can happen, by name; each says whether it has done anything."""
LASTS_S = {
    "node-drains": (1.0, 12.0), "node-leaves": (1.0, 12.0), "node-dies": (1.0, 15.0), "rack-dies": (1.0, 12.0),
    "node-stops": (0.5, 12.0), "driver-stops": (0.5, 25.0),
    "driver-given-up": (1.0, 14.0), "coordinator-stops": (0.2, 15.0), "zookeeper-away": (0.2, 12.0),
    "cut-off": (0.2, 15.0), "falls-behind": (1.0, 12.0),
    "coordinator-overtaken": (0.5, 5.0), "store-slow": (1.0, 8.0), "store-refuses": (0.5, 8.0),
}  # fmt: skip
MOST_FAULTS = 9


def draw(seed: int, first_s: float, last_s: float) -> tuple[Fault, ...]:
    """The faults of a seed, in the order of their times."""
    dice = random.Random(f"faults of {seed}")
    kinds = dice.sample(sorted(KINDS), dice.randint(1, 6))
    faults = []
    for _ in range(dice.randint(1, MOST_FAULTS)):
        kind = dice.choice(kinds)
        seconds = round(dice.uniform(*LASTS_S[kind]), 1) if kind in LASTS_S else 0.0
        faults.append(Fault(round(dice.uniform(first_s, last_s), 2), kind, dice.randrange(60), seconds))
    return tuple(sorted(faults, key=lambda fault: fault.at))


def heal(cluster: Cluster) -> None:
    """Everything that was disturbed is well again, and every machine is there."""
    cluster.store.slow, cluster.store.refuses = False, 0.0
    if cluster.ensemble.away:
        cluster.ensemble.come_back()
    for process in list(cluster.ensemble.cut):
        cluster.ensemble.heal(process)
    for client in cluster.ensemble.clients:
        client.be_up_to_date()
    for name in cluster.machines:
        _undrain(cluster, name)
    for machine in cluster.machines.values():
        if machine.alive:
            machine.thaw_all()
        else:
            cluster.add(machine.name)
    for process in (*cluster.drivers, *cluster.coordinators.values()):
        _go_on(cluster, process)
