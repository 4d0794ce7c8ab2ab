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
from itertools import combinations, permutations

from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.core import Process, Signal
from reprise.controller.simulated_world.exchange import Link, Severed
from reprise.controller.simulated_world.nodes import GRACE_S
from reprise.controller.simulated_world.spark import Application, Cut
from reprise.controller.zookeeper.leaving import encode_leaving
from reprise.controller.zookeeper.node_record import leaving_path
from reprise.controller.zookeeper.paths import COORDINATOR, PAUSED, SKIPS
from reprise.controller.zookeeper.process_records import encode_paused
from reprise.controller.zookeeper.skip_wishes import encode_skip
from reprise.scheduler.model import Leaving, SkipWish
from reprise.spark_jobs.state.driver_records import EPOCHS
from reprise.spark_jobs.state.graphs import GRAPHS
from reprise.spark_jobs.state.ledger import RANGES
from reprise.spark_jobs.state.release import CLOCKS
from reprise.spark_jobs.state.revision import REVISIONS
from reprise.spark_jobs.state.skips import SKIPPED
from reprise.spark_jobs.topology import expand

RECORDS = (EPOCHS, RANGES, REVISIONS, CLOCKS, GRAPHS, SKIPPED, "cp-")
"""Folders of a checkpoint location whose records may be refused."""
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


def query_skipped(cluster: Cluster, fault: Fault) -> bool:
    """Somebody asks that a query does without what it has missed (`reprise skip`)."""
    queries = sorted(expand(cluster.resource).queries)
    path = f"{cluster.root}/{SKIPS}/{queries[fault.which % len(queries)]}"
    if path in cluster.ensemble.tree.znodes:
        return False
    cluster.world.note(f"{path.rpartition('/')[2]} is to be skipped")
    cluster.ensemble.tree.put(path, encode_skip(SkipWish(f"{fault.at}")))
    return True


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


def link_cut(cluster: Cluster, fault: Fault) -> bool:
    """Orders of the newest driver do not reach one host for a while, or its answers do not come back, or both."""
    application = cluster.applications[-1]
    hosts = sorted(application.executors)
    if not hosts:
        return False
    host = hosts[fault.which % len(hosts)]
    if host in application.cut:
        return False
    orders, answers = ((True, True), (True, False), (False, True))[fault.which // len(hosts) % 3]
    what = " and ".join(["orders"] * orders + ["answers"] * answers)
    cluster.world.note(f"no {what} between {application.driver.name} and {host}")
    application.cut[host] = cut = Cut(Signal(cluster.world), orders, answers)
    cluster.world.call(fault.seconds, partial(_joined, application, host, cut))
    return True


def _joined(application: Application, host: str, cut: Cut) -> None:
    if application.cut.get(host) is cut:
        del application.cut[host]
        application.world.note(f"{application.driver.name} and {host} hear each other again")
        cut.whole.set()


def nodes_cut(cluster: Cluster, fault: Fault) -> bool:
    """Two nodes cannot fetch from each other for a while; everybody else reaches both.  Tasks that want messages wait, or
    are told that they cannot have them, and their jobs fail."""
    names = sorted(name for name, machine in cluster.machines.items() if machine.alive)
    pairs = [frozenset(pair) for pair in combinations(names, 2)]
    if not pairs:
        return False
    pair, refuses = pairs[fault.which % len(pairs)], bool(fault.which // len(pairs) % 2)
    if pair in cluster.severed:
        return False
    how = "refused" if refuses else "waited for"
    cluster.world.note(f"nothing travels between {' and '.join(sorted(pair))}: it is {how}")
    _sever(cluster, pair, refuses, fault.seconds)
    return True


def one_way_cut(cluster: Cluster, fault: Fault) -> bool:
    """Nothing of one node comes to another one for a while; the way back is whole."""
    names = sorted(name for name, machine in cluster.machines.items() if machine.alive)
    ways = list(permutations(names, 2))
    if not ways or (way := ways[fault.which % len(ways)]) in cluster.severed:
        return False
    cluster.world.note(f"nothing of {way[0]} comes to {way[1]}")
    _sever(cluster, way, False, fault.seconds)
    return True


def _sever(cluster: Cluster, link: Link, refuses: bool, seconds: float) -> None:
    cluster.severed[link] = cut = Severed(Signal(cluster.world), refuses)
    cluster.world.call(seconds, partial(_mended, cluster, link, cut))


def _mended(cluster: Cluster, link: Link, cut: Severed) -> None:
    if cluster.severed.get(link) is cut:
        del cluster.severed[link]
        cluster.world.note(f"the link of {' and '.join(sorted(link))} is whole again")
        cut.whole.set()


def relay_dies(cluster: Cluster, fault: Fault) -> bool:
    """A relay ends alone, and its exchange with it; every host stays."""
    exchanges = cluster.applications[-1].exchanges
    running = [] if exchanges is None else exchanges.running
    if running:
        exchange = running[fault.which % len(running)]
        cluster.world.note(f"a relay of exchange {exchange.number} ends")
        exchange.end()
    return bool(running)


def clock_set(cluster: Cluster, fault: Fault) -> bool:
    """The clock of a process, or of everything on one node, is set by up to an hour, forward or back."""
    off = cluster.world.dice.choice((-1, 1)) * cluster.world.between(0.5, 3600.0)
    processes = [*cluster.drivers, *cluster.coordinators.values()]
    machines = [machine for machine in cluster.machines.values() if machine.alive]
    groups = [[p] for p in processes if p.alive] + [[m.agent, *m.executors] for m in machines]
    if not groups:
        return False
    group = groups[fault.which % len(groups)]
    cluster.world.note(f"the clock of {group[0].name} is set by {off:+.0f} s")
    for process in group:
        process.clock_off += off
    return True


def disk_full(cluster: Cluster, fault: Fault) -> bool:
    """The disk of one node has room for nothing more for a while: neither for output nor for copies of states."""
    machine = cluster.machines[_name(cluster, fault.which)]
    if not machine.alive or machine.disk_full:
        return False
    machine.fill_disk()
    cluster.world.call(fault.seconds, partial(machine.fill_disk, False))
    return True


def store_full(cluster: Cluster, fault: Fault) -> bool:
    cluster.store.full = True
    cluster.world.call(fault.seconds, partial(setattr, cluster.store, "full", False))
    return True


def store_slow(cluster: Cluster, fault: Fault) -> bool:
    cluster.store.slow = True
    cluster.world.call(fault.seconds, partial(setattr, cluster.store, "slow", False))
    return True


def store_refuses(cluster: Cluster, fault: Fault) -> bool:
    cluster.store.refuses = 0.4
    cluster.world.call(fault.seconds, partial(setattr, cluster.store, "refuses", 0.0))
    return True


def record_refused(cluster: Cluster, fault: Fault) -> bool:
    """The store does not write one kind of record for a while, or once; half of these writes are carried out, and only their
    answer is lost."""
    if cluster.store.refused:
        return False
    folder = RECORDS[fault.which % len(RECORDS)]
    cluster.store.refused = f"/checkpoints/{folder}"
    cluster.store.refused_once = bool(fault.which // len(RECORDS) % 2)
    cluster.world.note(f"{'one of ' if cluster.store.refused_once else ''}{folder} cannot be written")
    cluster.world.call(fault.seconds, partial(setattr, cluster.store, "refused", ""))
    return True


def paused(cluster: Cluster, fault: Fault) -> bool:
    """Somebody pauses the topology, and lets it go on after a while."""
    path = f"{cluster.root}/{PAUSED}"
    if path in cluster.ensemble.tree.znodes:
        return False
    cluster.world.note("the topology is paused")
    cluster.ensemble.tree.put(path, encode_paused(True))
    cluster.world.call(fault.seconds, partial(_resumed, cluster))
    return True


def _resumed(cluster: Cluster) -> None:
    if (path := f"{cluster.root}/{PAUSED}") in cluster.ensemble.tree.znodes:
        cluster.world.note("the topology goes on")
        cluster.ensemble.tree.remove(path)


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
        link_cut, clock_set, disk_full, store_full, nodes_cut, record_refused, paused, one_way_cut, relay_dies,
    )
}  # fmt: skip
"""What can happen, by name; each says whether it has done anything."""
ASKED: Mapping[str, Callable[[Cluster, Fault], bool]] = {"query-skipped": query_skipped}
"""What people do; seeds draw it where the topology allows it (`Schedule.with_wishes`)."""
LASTS_S = {
    "node-drains": (1.0, 12.0), "node-leaves": (1.0, 12.0), "node-dies": (1.0, 15.0), "rack-dies": (1.0, 12.0),
    "node-stops": (0.5, 12.0), "driver-stops": (0.5, 25.0),
    "driver-given-up": (1.0, 14.0), "coordinator-stops": (0.2, 15.0), "zookeeper-away": (0.2, 12.0),
    "cut-off": (0.2, 15.0), "falls-behind": (1.0, 12.0),
    "coordinator-overtaken": (0.5, 5.0), "store-slow": (1.0, 8.0), "store-refuses": (0.5, 8.0),
    "record-refused": (0.5, 8.0), "paused": (0.5, 9.0),
    "link-cut": (0.5, 15.0), "nodes-cut": (0.5, 15.0), "one-way-cut": (0.5, 15.0),
    "disk-full": (1.0, 12.0), "store-full": (0.5, 8.0),
}  # fmt: skip
MOST_FAULTS = 9
LATER = {"nodes-cut": 0.2, "record-refused": 0.2, "paused": 0.15, "one-way-cut": 0.2, "relay-dies": 0.3}
"""Kinds that are drawn beside the others, each in such a share of seeds: a seed keeps the faults that it had before there
was this kind."""


def draw(seed: int, first_s: float, last_s: float) -> tuple[Fault, ...]:
    """The faults of a seed, in the order of their times."""
    dice = random.Random(f"faults of {seed}")
    kinds = dice.sample(sorted(KINDS.keys() - LATER.keys()), dice.randint(1, 6))
    faults = []
    for _ in range(dice.randint(1, MOST_FAULTS)):
        faults.append(drawn(dice, dice.choice(kinds), first_s, last_s))
    for kind, share in LATER.items():
        dice = random.Random(f"{kind} of {seed}")
        if dice.random() < share:
            faults += [drawn(dice, kind, first_s, last_s) for _ in range(dice.randint(1, 3))]
    return tuple(sorted(faults, key=lambda fault: fault.at))


def drawn(dice: random.Random, kind: str, first_s: float, last_s: float) -> Fault:
    """One fault of a kind."""
    seconds = round(dice.uniform(*LASTS_S[kind]), 1) if kind in LASTS_S else 0.0
    return Fault(round(dice.uniform(first_s, last_s), 2), kind, dice.randrange(60), seconds)


def heal(cluster: Cluster) -> None:
    """Everything that was disturbed is well again, and every machine is there."""
    cluster.store.slow, cluster.store.refuses, cluster.store.full = False, 0.0, False
    cluster.store.refused = ""
    _resumed(cluster)
    for application in cluster.applications:
        for host, cut in list(application.cut.items()):
            _joined(application, host, cut)
    for pair, severed in list(cluster.severed.items()):
        _mended(cluster, pair, severed)
    for machine in cluster.machines.values():
        machine.fill_disk(False)
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
