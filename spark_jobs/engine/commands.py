"""The command of each node for the next job: what it is to host and to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reprise.spark_jobs.engine.objectives import seconds_within
from reprise.spark_jobs.engine.origins import covered_now
from reprise.spark_jobs.engine.settings import resource_in_effect
from reprise.spark_jobs.node.command import Command, Install

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine


def commands_of(engine: Engine, slots: Sequence[str], window: int) -> list[Command]:
    """The command of each slot; what is the same for all is one object."""
    slot_of = {node: i for i, node in enumerate(slots)}
    routes = {p: slot_of[engine.desired.assignment[p]] for p in engine.positions}
    hosted: list[list[str]] = [[] for _ in slots]
    for partition, slot in routes.items():
        hosted[slot].append(partition)
    positions, resend = dict(engine.positions), tuple(sorted(engine.resend))
    asked = engine.lines.clocks.requests
    standbys = engine.standbys
    covered = engine.upstream.covered(standbys.covered(covered_now(engine)), positions)
    shadows = standbys.told(slot_of, positions)
    hosts = [standbys.hosted(node) for node in slots]
    within = seconds_within(engine)
    keeps = resource_in_effect(engine).keeps_output
    granted = engine.granted()
    due = engine.due_for_hosts()
    skips, sealed = engine.skipping.told(covered.oldest), engine.skipping.sealed
    return [
        Command(
            job=engine.jobs,
            epoch=engine.epoch,
            slot=slot,
            topology=engine.resource.document,
            sink=engine.sites.sink,
            checkpoints=engine.sites.checkpoints,
            hosted={**{p: engine.installation[p] for p in mine}, **hosts[slot][0]},
            # of those at work none: a host that is new would begin with what is long past
            installs={**{p: _install(engine, p) for p in mine if p in engine.installing}, **hosts[slot][1]},
            routes=routes,
            positions=positions,
            resend=resend,
            ranges={p: engine.ranges.new(p, *engine.reading(p)) for p in mine if p in engine.ledger.ranges},
            horizon=engine.horizon,
            due=due,
            final=engine.final,
            punctuations=engine.punctuations.open,
            retain=engine.desired.retain,
            keeps=keeps,
            published=engine.punctuations.newest,
            stream=engine.ledger.stream,
            begins=engine.ledger.begins,
            later=engine.later,
            covered=covered,
            window=window,
            confirmed=engine.confirmed,
            link=engine.connection.link,
            link_key=engine.connection.link_key,
            generation=engine.desired.generation,
            snapshot={p: asked[p] for p in mine if p in asked},
            skips=skips,
            sealed=sealed,
            standbys=shadows,
            causes=engine.upstream.causes,
            within={p: within[p] for p in mine if p in within},
            waits=tuple(sorted(granted.waits.intersection(mine))),
            hold=granted.hold,
        )
        for slot, mine in enumerate(hosted)
    ]


def _install(engine: Engine, partition: str) -> Install:
    """How a partition begins: out of its standby, fed by its upstreams, anew, or from what it is restored from."""
    return (
        engine.standbys.install(partition)
        or engine.upstream.install(partition)
        or engine.skipping.install(partition)
        or engine.restore_point.installs.get(partition, Install(engine.positions[partition]))
    )
