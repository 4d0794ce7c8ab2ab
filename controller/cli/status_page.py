"""How a topology stands, on one screen: built from the status document alone.

Made to be read in a minute at three in the morning: the worst and most valuable come first, what does not fit is counted and
never silently left out, and every colour has its word beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reprise.algorithms.spans import batches
from reprise.controller.cli.queries_table import BY_NEED, STYLES, empty_table, rest_line, state_text
from reprise.controller.cli.render import span
from reprise.controller.plural import counted
from reprise.controller.status import StatusDocument
from reprise.controller.status.failure_domains import FailureDomainsView, FailureDomainView
from reprise.controller.status.model import CalmPhase, IncidentView, PlanView, QueryView, SkipView
from reprise.controller.status.partition_state import NodeState
from reprise.controller.status.query_state import Status
from reprise.controller.status.standbys import with_upstream_backup
from reprise.controller.zookeeper.advance import FEW
from reprise.scheduler.incident import batches_in, some
from reprise.spark_jobs.contract import LATE_ROWS
from reprise.spark_jobs.topology.promise import Guarantee

NODE_STYLES = {
    NodeState.READY: "green",
    NodeState.STANDBY: "cyan",
    NodeState.JOINING: "yellow",
    NodeState.DRAINING: "yellow",
    NodeState.DRAINED: "cyan",
    NodeState.LOST: "bold red",
}
PHASE_STYLES: Mapping[str, str] = {
    CalmPhase.STEADY: "bold green",
    CalmPhase.SILENT: "bold red",
    CalmPhase.ENDED: "bold green",
    CalmPhase.PAUSED: "bold cyan",
    CalmPhase.STARTING: "bold yellow",
}
EVENTS = 4
NAMED_NODES = 6
DOMAINS = 4
LABEL = 11


def status_page(
    document: StatusDocument, height: int, actions: Sequence[str] = (), wide: bool = False
) -> RenderableType:
    """The page, of at most `height` lines where that is possible at all; `wide` leaves nothing out."""
    head = [_headline(document), _queries(document), _weighted(document), _nodes(document, wide)]
    if document.incident is not None:
        head.append(_incident(document.incident, document.time))
        head += _starts(document.incident, wide)
        head += _gaps(document.incident)
    if document.plan is not None:
        head.append(_plan(document.plan, document.time))
    head += [_line("skip", text, "bold yellow") for text in map(_skip, document.skips)]
    head += _slower(document)
    head += _rebalancing(document)
    head += _domains(document.failure_domains, wide)
    head += _standbys(document, wide)
    head += _backups(document, wide)
    head += _promises(document, wide)
    head += [_line("messages", f"wait for stages of jobs: {document.chained}")] if document.chained else []
    head += _counters(document, wide)
    head += [_line("problem", text, "bold red") for text in document.problems[: None if wide else 2]]
    tail = _last(document, actions)
    if wide:
        for line in (*head, *tail):
            line.no_wrap, line.overflow = False, "fold"
    room = len(document.queries.items) if wide else max(3, height - len(head) - len(tail) - 4)
    return Group(*head, Text(), *_table(document, room, wide), *([Text()] if tail else []), *tail)


def by_need(queries: Sequence[QueryView]) -> list[QueryView]:
    """What is down first, and the most valuable first within."""
    return sorted(queries, key=lambda query: (BY_NEED.index(query.state), -query.priority))


def _missing(query: QueryView) -> str:
    more = query.missing_total - len(query.missing)
    return " ".join([*query.missing, *([f"and {more} more"] if more > 0 else [])])


def query_table(queries: Sequence[QueryView], now: float, wide: bool) -> Table:
    """One row a query, in the order given."""
    table = empty_table([q.id for q in queries], wide, ("down for", "missing") if wide else ())
    for query in queries:
        more = []
        if wide:
            down = query.lost_at is not None and query.caught_up_at is None
            more = [span(now - query.lost_at) if down and query.lost_at else "", _missing(query)]
        table.add_row(
            query.id, str(query.priority), str(query.lag), state_text(query.state), *more, Text(query.reason)
        )
    return table


def _line(label: str, text: str | Text, style: str = "bold") -> Text:
    line = Text(label.ljust(LABEL), style=style, no_wrap=True, overflow="ellipsis")
    return line.append(text if isinstance(text, Text) else Text(text, style="default"))


def _headline(document: StatusDocument) -> Text:
    style = PHASE_STYLES.get(document.phase, "bold yellow")
    line = Text(f"{document.topology}  ", style="bold", no_wrap=True, overflow="ellipsis")
    line.append(document.phase.upper(), style=style)
    if not document.connected:
        line.append("  ZooKeeper does not answer: last known state", style="bold red")
    line.append(f"  batch {document.batch}", style="default")
    if document.due - document.batch > FEW:
        line.append(f" of {document.due} due", style="yellow")
    if document.checkpoint is not None:
        line.append(f"  checkpoint {document.checkpoint.newest}", style="default")
        if not document.checkpoint.enabled and document.phase not in (CalmPhase.PAUSED, CalmPhase.ENDED):
            line.append(" (no new ones)", style="default")
    return line


def _queries(document: StatusDocument) -> Text:
    queries = document.queries
    text = Text(f"{queries.available} of {queries.total} available", style=STYLES[Status.AVAILABLE])
    for count, status in ((queries.recovering, Status.RECOVERING), (queries.waiting, Status.WAITING)):
        if count:
            text.append(", ", style="default").append(f"{count} {status.value}", style=STYLES[status])
    return _line("queries", text)


def _weighted(document: StatusDocument) -> Text:
    """What is there of the summed priority, and what the capacity allows at most."""
    text = f"{100 * document.queries.share:.0f} % of the summed priority is available"
    bound = document.availability.points[-1].bound if document.availability.points else None
    if document.incident is not None:
        known = "unknown until the next plan" if bound is None else f"{100 * bound:.0f} %"
        text += f"; the capacity allows {known}"
    return _line("weighted", text)


def _nodes(document: StatusDocument, wide: bool) -> Text:
    counts = Counter(node.state for node in document.nodes)
    text = Text()
    for state in NodeState:
        if counts[state]:
            text.append(", " if text else "", style="default")
            text.append(f"{counts[state]} {state.value}", style=NODE_STYLES[state])
            if state is not NodeState.READY or wide:
                text.append(
                    f" ({_named([n.id for n in document.nodes if n.state is state], wide)})", style="default"
                )
    return _line("nodes", text if text else Text("none", style="bold red"))


def _named(nodes: Sequence[str], wide: bool) -> str:
    """Nodes by name, and how many more there are; `wide`: all of them, with their incarnations."""
    if wide:
        return " ".join(nodes)
    rest = f" and {len(nodes) - NAMED_NODES}" if len(nodes) > NAMED_NODES else ""
    return " ".join(node.rpartition("#")[0] for node in nodes[:NAMED_NODES]) + rest


def _slower(document: StatusDocument) -> list[Text]:
    """Nodes that run more than their cap, and how much slower that makes what is on them."""
    found = [
        f"{n.name} {n.used}m of {n.cpu}m" + (f", {n.slowdown:g} times as slow" if n.slowdown > 1 else "")
        for n in document.nodes
        if n.slowdown is not None
    ]
    return [_line("above cap", "; ".join(found), "bold yellow")] if found else []


def _rebalancing(document: StatusDocument) -> list[Text]:
    """What is moved to level load, and what follows; nothing where nothing is to come."""
    found = document.rebalancing
    if found is None:
        return []
    if found.due is not None:
        return [_line("rebalance", f"load is looked at in {span(max(0.0, found.due - document.time))}")]
    said = [f"{partition} goes to {node}" for partition, node in found.moving.items()]
    said += [f"{counted(found.left, 'partition follows', 'partitions follow')}"] if found.left else []
    return [_line("rebalance", ", ".join(said))]


def _incident(incident: IncidentView, now: float) -> Text:
    text = Text(f"{incident.id} {incident.kind}", style="bold yellow")
    text.append(
        f", open {span(now - incident.opened_at)}; {incident.queries_back} of {incident.queries_lost} queries back",
        style="default",
    )
    return _line("incident", text)


def _starts(incident: IncidentView, wide: bool) -> list[Text]:
    """How far the nodes are that have come, the newest first; `wide`: all of them."""
    said: list[str] = []
    for start in reversed(incident.starts):
        phase = next(reversed(list(start.ended)), None)
        if phase is not None:
            after = f" {start.seconds[phase]:.1f} s after its request" if phase in start.seconds else ""
            said.append(f"{start.node} {phase}{after}")
    shown = said if wide else said[:3]
    rest = [f"and {len(said) - len(shown)} more"] if len(said) > len(shown) else []
    return [_line("new nodes", ", ".join([*shown, *rest]))] if said else []


def _gaps(incident: IncidentView) -> list[Text]:
    """Outputs that lack rows, most batches first."""
    gaps = incident.gaps
    if not gaps:
        return []
    widest = sorted(gaps, key=lambda query: (-batches(gaps[query]), query))
    count = counted(batches_in(gaps), "batch", "batches")
    named = some([f"{query} {', '.join(f'{a} to {b}' for a, b in gaps[query])}" for query in widest])
    return [_line("gaps", Text(f"{count} may lack rows, and are marked: {named}", style="yellow"))]


def _plan(plan: PlanView, now: float) -> Text:
    quality = "optimal" if plan.optimal else f"at most {plan.bound}"
    value = "" if plan.value is None else f" worth {plan.value} ({quality})"
    text = (
        f"{plan.id.rpartition('-')[2]} {plan.trigger} {span(now - plan.time)} ago: {len(plan.chosen)} queries{value}, "
        f"{plan.at_work}/{len(plan.added)} partitions up"
    )
    return _line("plan", text)


def _skip(skip: SkipView) -> str:
    if not skip.taken:
        return f"{skip.query} is to do without what it has missed; nobody has taken that up yet"
    return f"{skip.query} does without what it has missed: {some(skip.partitions)} begin anew"


def _domains(found: FailureDomainsView | None, wide: bool) -> list[Text]:
    """What would be lost with a failure domain, and which nodes are in each, the worst first; `wide` names all of them."""
    if found is None:
        return []
    shown = found.items if wide else found.items[:DOMAINS]
    more = len(found.items) - len(shown)
    named = [*(_domain(item, wide) for item in shown), *([f"and {more} more"] if more else [])]
    mean = f"{found.lost:g} of a priority of {found.priority} would be lost with one of {len(found.items)}"
    return [_line("domains", f"{mean} on average: {'; '.join(named)}; by {found.label}")]


def _domain(item: FailureDomainView, wide: bool) -> str:
    nodes = _named(item.nodes, wide)
    where = f"{nodes}, domain not known" if item.value is None else f"{item.value} ({nodes})"
    without = "" if item.lost == item.priority else f", {item.priority} without standbys"
    return f"{item.lost} with {where}{without}"


def _standbys(document: StatusDocument, wide: bool) -> list[Text]:
    """How many partitions could go on elsewhere at once, of those that are to, and in which failure domains; `wide` names
    each."""
    if (found := document.standbys) is None:
        return []
    said = f"{found.ready} of {found.wanted} wanted could go on now, {found.placed} are placed"
    if found.apart or found.same_domain or found.unknown_domain:
        said += f"; in another failure domain: {found.apart}, in the same: {found.same_domain}"
        said += f", not known: {found.unknown_domain}" if found.unknown_domain else ""
    if wide:
        said += f": {', '.join(_named_standbys(document))}"
    well = found.ready == found.wanted and not found.same_domain and not found.unknown_domain
    return [_line("standbys", said, "bold" if well else "bold yellow")]


def _named_standbys(document: StatusDocument) -> Iterator[str]:
    """Each that is to be: where it is, at which batch, and in which failure domain."""
    label_of = {o.name: o.failure_domain for o in document.graph.operators if o.standbys}
    labels = {node.id: node.labels for node in document.nodes}
    for p in document.partitions:
        if p.operator not in label_of:
            continue
        if p.standby is None:
            yield f"{p.id} none"
            continue
        at = "not ready" if p.standby_position is None else f"at {p.standby_position}"
        domain = ""
        if (label := label_of[p.operator]) is not None:
            own, other = (labels.get(node or "", {}).get(label, "?") for node in (p.node, p.standby))
            domain = f" ({other}, from {own})"
        yield f"{p.id} on {p.standby} {at}{domain}"


def _backups(document: StatusDocument, wide: bool) -> list[Text]:
    """How many partitions could be fed again by what they read, of those with upstream backup; `wide` names those that would
    come from a checkpoint."""
    backed = with_upstream_backup(document.partitions, document.graph)
    if not backed:
        return []
    without = [p.id for p in backed if not p.backed]
    said = f"{len(backed) - len(without)} of {len(backed)} could be fed again now"
    if wide and without:
        said += f"; from a checkpoint: {', '.join(without)}"
    return [_line("backups", said, "bold yellow" if without else "bold")]


def _promises(document: StatusDocument, wide: bool) -> list[Text]:
    """Outputs of which less is promised than `precise`, or something is given up, each with the reason; `wide`: all."""
    found = [(o.name, o.promise) for o in document.graph.operators if o.promise is not None]
    told = [(name, promise) for name, promise in found if wide or not promise.whole]
    if not told:
        return []
    rest = len(found) - len(told)
    others = f"; {rest} more precise" if rest else ""
    gaps = any(promise.guarantee is Guarantee.GAP for _, promise in told)
    said = ", ".join(f"{name} {promise}" for name, promise in told)
    return [_line("outputs", said + others, "bold yellow" if gaps else "bold")]


def _counters(document: StatusDocument, wide: bool) -> list[Text]:
    """Rows that operators dropped as too late; `wide`: everything that they count."""
    late = [c for c in document.counters if c.name == LATE_ROWS and c.value]
    lines = []
    if late:
        named = ", ".join(f"{c.operator} {c.value}" for c in late)
        lines.append(
            _line("late rows", Text(f"{sum(c.value for c in late)} dropped: {named}", style="yellow"))
        )
    if wide and document.counters:
        every = ", ".join(f"{c.operator} {c.name} {c.value}" for c in document.counters)
        lines.append(_line("counters", every))
    return lines


def _table(document: StatusDocument, room: int, wide: bool) -> list[RenderableType]:
    ordered = by_need(document.queries.items)
    shown, rest = ordered[:room], ordered[room:]
    parts: list[RenderableType] = [query_table(shown, document.time, wide)]
    if rest:
        parts.append(rest_line([query.state for query in rest]))
    return parts


def _last(document: StatusDocument, actions: Sequence[str]) -> list[Text]:
    """The newest of the time line."""
    incident = document.incident or document.last_incident
    lines = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in actions]
    for event in incident.events[-EVENTS:] if incident else ():
        ago = span(document.time - event.time)
        text = f"{ago:>6} ago  {event.name} {event.detail}".rstrip()
        lines.append(Text(text, style="dim", no_wrap=True, overflow="ellipsis"))
    return lines
