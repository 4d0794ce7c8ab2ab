"""What `reprise run` shows in a terminal, several times a second: built from a `RunState` alone.

Lighter than the page of `reprise status`, which takes a whole status document: it is drawn by the process that runs the
topology, and it marks what the fault file has frozen, which no record says.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from reprise.controller.cli.queries_table import empty_table, rest_line, state_text
from reprise.controller.plan_summary import plan_summary
from reprise.controller.status.query_state import RunState, Status, current_plan

_REASON = 110


def page(name: str, state: RunState, last: list[str], rows: int = 30) -> RenderableType:
    """The whole page; `last`: the newest actions."""
    parts: list[RenderableType] = [Text(headline(name, state), style="bold"), nodes_line(state)]
    if (text := incident_line(state)) is not None:
        parts.append(text)
    parts += _queries(state, rows)
    parts += [Text(f"  {line}", style="dim") for line in last]
    return Group(*parts)


def headline(name: str, state: RunState) -> str:
    """Name, batch, and how many queries are how."""
    seen = state.observation
    batch = f"batch {seen.progress.horizon}" if seen.progress else "starting"
    counts = ", ".join(f"{state.count(status)} {status.value}" for status in Status if state.count(status))
    away = "" if seen.connected else "  (ZooKeeper does not answer: last known state)"
    checkpoint = f"  checkpoint {seen.progress.checkpoint}" if seen.progress else ""
    return f"{name}  {batch}{checkpoint}  queries: {counts}  weighted {100 * state.share:.0f} %{away}"


def nodes_line(state: RunState) -> Text:
    """All nodes that are alive; frozen and standby ones marked."""
    text = Text("nodes ")
    seen = state.observation
    ready = seen.progress.nodes if seen.progress else frozenset()
    for node in sorted(seen.nodes.values(), key=lambda n: (len(n.name), n.name)):
        style = "cyan" if node.name in state.frozen else "green" if node.id in ready else "yellow"
        mark = "*" if node.name in state.frozen else "+" if node.id in state.standby else ""
        text.append(f"{node.name}{mark} ", style=style)
    text.append(f"({len(seen.nodes)} alive", style="dim")
    text.append(", + hosts nothing" if state.standby else "", style="dim")
    text.append(", * frozen)" if state.frozen else ")", style="dim")
    return text


def incident_line(state: RunState) -> Text | None:
    """The open incident and its newest plan."""
    incident = state.observation.incident
    if incident is None:
        return None
    text = Text(f"incident {incident.id} {incident.kind.value}, {incident.phase.value}", style="bold yellow")
    text.append(f", from checkpoint {incident.checkpoint}, {len(incident.plans)} plans", style="default")
    plan = current_plan(state.observation)
    if plan is not None:
        text.append(f"\nplan {plan.id} {_short(plan_summary(plan), 2 * _REASON)}", style="default")
    return text


def _queries(state: RunState, rows: int) -> list[RenderableType]:
    """The most valuable queries first; those that are not available before those that are when rows are short."""
    shown, rest = list(state.queries), []
    if len(shown) > rows:
        ordered = sorted(shown, key=lambda query: query.status is Status.AVAILABLE)
        shown, rest = ordered[:rows], ordered[rows:]
    table = empty_table([query.id for query in state.queries], fold=True)
    for query in shown:
        reason = _short(query.reason, _REASON)
        table.add_row(query.id, str(query.priority), str(query.lag), state_text(query.status), reason)
    return [table, *([rest_line([query.status for query in rest])] if rest else [])]


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
