"""What would happen if these nodes were lost now and those arrived then: from a live observation, nothing touched.

The scheduler's own rules and planners decide (`reprise.scheduler.simulation.run`); this module turns records into its
snapshot, says what the answer assumes, and shapes it for people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reprise.controller.analysis.measured import Measured, measured
from reprise.controller.status import document
from reprise.controller.status.incidents import incident_view, planner_answers
from reprise.controller.status.model import IncidentView, StatusDocument
from reprise.controller.status.query_state import Status
from reprise.controller.status.share import priority_share
from reprise.controller.topology_view import policy_of, silent_operators, view_of
from reprise.controller.zookeeper.observation import Observation, snapshot_of
from reprise.scheduler.errors import SchedulerError
from reprise.scheduler.incident import Trigger
from reprise.scheduler.model import Policy, TopologyView
from reprise.scheduler.simulation.run import Change, Durations, Happening, SimulationResult, run_simulation
from reprise.scheduler.steps import RuleName
from reprise.spark_jobs.topology import StreamTopology, expand
from reprise.spark_jobs.topology.quantity import parse_duration

EARLIER = 10
"""As many closed incidents count beside the last one."""


class SimulationError(Exception):
    """What was asked cannot be simulated; one line that says why."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one moment brings."""

    at: float
    """Seconds after the observation."""
    what: Happening | RuleName
    detail: str
    queries: tuple[str, ...]
    """Those that it concerns."""
    share: float
    """Priority-weighted share of available queries from then on."""


@dataclass(frozen=True, slots=True)
class PlanOutlook:
    id: str
    at: float
    """Seconds after the observation."""
    trigger: Trigger
    placed: tuple[str, ...]
    """Queries that are whole with it: never lost, or brought back by it or an earlier one."""
    left_out: dict[str, str]
    """Query -> why the plan leaves it out."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Seconds count from the observation."""

    topology: str
    lose: tuple[str, ...]
    arrivals: tuple[tuple[float, int], ...]
    """(seconds, number of nodes) of each arrival."""
    timeline: tuple[Stage, ...]
    plans: tuple[PlanOutlook, ...]
    available: tuple[str, ...]
    """In the end."""
    waiting: dict[str, str]
    """Query -> why it still waits at the end."""
    assumptions: tuple[str, ...]
    """What it takes for granted, a sentence each."""
    at_least: str = ""
    """Why no time is more than a lower bound; empty where all that the times rest on was measured here."""


def parse_arrivals(text: str) -> list[tuple[float, int]]:
    """`2@90s,1@3m`: (seconds, nodes).  SimulationError shows the form."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"(\d+)@(\S+)", part)
        try:
            if match is None or int(match[1]) < 1:
                raise ValueError
            moment = match[2]
            at = float(moment) if moment.replace(".", "", 1).isdigit() else parse_duration(moment)
        except ValueError:
            raise SimulationError(f"{part!r} is not written NODES@TIME, as in 2@90s") from None
        found.append((at, int(match[1])))
    return sorted(found)


def simulate(
    resource: StreamTopology,
    seen: Observation,
    lose: Sequence[str] = (),
    arrivals: Sequence[tuple[float, int]] = (),
    operated: bool = False,
) -> Simulation:
    """SimulationError when nothing runs, or a node is not there.  `operated`: an operator on Kubernetes decides."""
    topology = decided_view(resource, operated)
    policy = decided_policy(resource, seen)
    now = document(expand(resource), seen)
    times = measured(now, _earlier(seen, resource))
    changes = [Change(0.0, lose=tuple(lose))] if lose else []
    changes += [Change(at, arrive=count) for at, count in arrivals]
    try:
        found = run_simulation(
            snapshot_of(topology, seen, resource.paused), policy, changes, _durations(times)
        )
    except (SchedulerError, LookupError) as error:
        raise SimulationError(str(error.args[0] if error.args else error)) from error
    return Simulation(
        topology=resource.name,
        lose=tuple(lose),
        arrivals=tuple(arrivals),
        timeline=_stages(found, topology, now),
        plans=_plans(found, seen.time),
        available=tuple(sorted(found.available)),
        waiting=dict(found.waiting),
        assumptions=(*_assumptions(seen, policy, times, lose), *_about_own_classes(resource, operated)),
        at_least=_lower_bound(times),
    )


def _earlier(seen: Observation, resource: StreamTopology) -> list[IncidentView]:
    """Closed incidents that are on record beside the last one, which the document has."""
    closed = sorted(seen.closed.values(), key=lambda incident: incident.turn)[-EARLIER - 1 : -1]
    queries, answers = expand(resource).queries, planner_answers(seen)
    return [incident_view(incident, seen, queries, answers) for incident in closed]


def _lower_bound(times: Measured) -> str:
    """What was never seen to its end here is not in the times, so each of them is a lower bound."""
    missing = [
        f"{what}: {sample}"
        for what, sample in (("restoring", times.restore), ("catching up", times.catch_up))
        if not sample.exact
    ]
    if len(missing) > 1 and not times.restore.seconds and not times.catch_up.at_least:
        return "no past recovery of this topology was measured"
    return "; ".join(missing)


def decided_view(resource: StreamTopology, operated: bool) -> TopologyView:
    """The modules that a resource names are not imported on the machine of whoever asks, no more than in the operator, which
    takes a class that the spec says nothing of for one that is not deterministic.  A coordinator of `reprise run` asks the
    class; here it counts as deterministic then, and the answer says so."""
    if not operated:
        silent = silent_operators(resource)
        operators = [replace(s, deterministic=True) if s.name in silent else s for s in resource.operators]
        resource = replace(resource, operators=tuple(operators))
    return view_of(resource, own_code=False)


def _about_own_classes(resource: StreamTopology, operated: bool) -> tuple[str, ...]:
    if not (silent := silent_operators(resource)):
        return ()
    names = ", ".join(silent)
    costs = "each further loss takes all queries back"
    if operated:
        return (
            f"the operator counts classes of your own as not deterministic until the spec says so ({names}): {costs}",
        )
    return (
        f"classes of your own count as deterministic where the spec is silent ({names}); `reprise run` asks the class, and "
        f"an operator on Kubernetes counts them as not deterministic until the spec says so: then {costs}",
    )


def _durations(times: Measured) -> Durations:
    return Durations(restore_s=times.restore.middle or 0.0, catch_up_s=times.catch_up.middle or 0.0)


def _stages(found: SimulationResult, topology: TopologyView, now: StatusDocument) -> tuple[Stage, ...]:
    priorities = {query.id: query.priority for query in topology.queries}
    up = {q.id for q in now.queries.items if q.state is Status.AVAILABLE}
    stages = []
    for entry in found.events:
        if entry.what is Happening.QUERIES_DOWN:
            up -= set(entry.queries)
        elif entry.what is Happening.QUERIES_BACK:
            up |= set(entry.queries)
        share = priority_share((priority, query in up) for query, priority in priorities.items())
        # no batches are simulated, so the number of the checkpoint would be made up
        detail = "the next global checkpoint is complete" if entry.what is RuleName.CLOSED else entry.detail
        stages.append(Stage(round(entry.at, 1), entry.what, detail, entry.queries, round(share, 4)))
    return tuple(stages)


def _plans(found: SimulationResult, start: float) -> tuple[PlanOutlook, ...]:
    return tuple(
        PlanOutlook(
            plan.id,
            round(plan.time - start, 1),
            plan.trigger,
            tuple(sorted(found.placed[plan.id])),
            dict(plan.left_out),
        )
        for plan in found.plans
    )


def _assumptions(seen: Observation, policy: Policy, times: Measured, lose: Sequence[str]) -> tuple[str, ...]:
    costs = (
        "costs as the open incident froze them" if seen.incident else "costs as measured last, or declared"
    )
    restore = f"restoring takes the median of what was measured ({times.restore})"
    if times.restore.middle is None:
        restore = "how long restoring takes was never measured: times are those of the decisions"
    return (
        "the coordinator's own rules and planners decide, with the settings of the resource",
        _about_waiting(seen, policy),
        costs,
        "nodes that arrive have spec.nodes.cpu and are ready at once",
        restore,
        f"catching up: {times.catch_up}",
        *(("a loss is noticed at once; in fact after the session timeout",) if lose else ()),
    )


def decided_policy(resource: StreamTopology, seen: Observation) -> Policy:
    """The policy that the coordinator says it is set to, of which a time may be 0."""
    usual = Policy()
    return policy_of(
        resource,
        usual.settle_s if seen.settle_s is None else seen.settle_s,
        usual.driver_grace_s if seen.driver_grace_s is None else seen.driver_grace_s,
    )


def _about_waiting(seen: Observation, policy: Policy) -> str:
    """The two settings that are the deployment's and not the resource's."""
    waits = f"the rest of a burst is waited for {policy.settle_s:g} s, the nodes of a new driver {policy.driver_grace_s:g} s"
    if seen.settle_s is not None and seen.driver_grace_s is not None:
        return f"{waits}, as the coordinator says"
    return f"{waits}: the defaults, as no coordinator says what it is set to"
