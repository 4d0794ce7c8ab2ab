"""The post-mortem as Markdown: facts first, then what would have been otherwise, then what is left for people to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reprise.controller.analysis.postmortem.counterfactual import Counterfactuals, Curve
from reprise.controller.analysis.postmortem.story import Story
from reprise.controller.plan_summary import plan_summary
from reprise.controller.plural import counted
from reprise.controller.status.timeline import entries
from reprise.controller.utc import utc
from reprise.scheduler.back import summary
from reprise.scheduler.incident import Incident, batches_in
from reprise.scheduler.node_start import LATER, StartPhase, eldest_first


def markdown(story: Story, otherwise: Counterfactuals | None, plots: Sequence[str]) -> str:
    """The whole page; `plots` are names of picture files beside it."""
    parts = [
        *_head(story),
        *[f"![{name.rpartition('.')[0]}]({name})\n" for name in plots],
        *_downtime(story),
        *_gaps(story),
        *_timeline(story),
        *_starts(story),
        *_plans(story),
        *_otherwise(story, otherwise),
        "## To be written by people\n",
        "- What failed, and why:\n- What helped, what was in the way:\n- What follows, by whom, until when:\n",
    ]
    return "\n".join(parts)


def _head(story: Story) -> list[str]:
    incident = story.incident
    down = story.downtimes
    state = "open" if incident.closed_at is None else f"closed after {story.end - incident.opened_at:.1f} s"
    least = "" if all(d.measured for d in down) else "at least "
    return [
        f"# Incident {incident.id} of {story.topology.name}\n",
        _table(
            ("", ""),
            [
                ("kind", incident.kind.value),
                ("detected", _utc(incident.opened_at)),
                ("state", state),
                ("nodes lost", f"{_count_lost(incident)}: {_nodes(story)}"),
                ("nodes that arrived", str(len(story.arrivals))),
                ("recovered from checkpoint", str(incident.checkpoint)),
                ("queries lost", f"{len(down)} of {len(story.topology.queries)}"),
                ("queries back", summary(incident, story.end)),
                ("plans", str(len(story.plans))),
                (
                    "availability lost",
                    f"{least}{story.lost_s:.1f} s of the whole topology, weighted by priority, by the times below",
                ),
            ],
        ),
    ]


def _count_lost(incident: Incident) -> str:
    """Nodes that came after the detection may be lost as well, so more than there were before it."""
    lost, before = len(incident.lost), incident.nodes_before
    return f"{lost} of {before}" if lost <= before else f"{lost}, where {before} were before"


def _nodes(story: Story) -> str:
    return ", ".join(lost.node for lost in story.incident.lost) or "none"


def _downtime(story: Story) -> list[str]:
    rows = []
    for d in story.downtimes:
        rows.append(
            (
                f"`{d.query}`",
                str(d.priority),
                _after(d.lost_at, story.incident.opened_at),
                _after(d.restored_at, d.lost_at),
                _after(d.caught_up_at, d.lost_at),
                f"{'' if d.measured else 'at least '}{d.down_s:.1f} s",
                str(d.losses),
                str(d.relapses),
            )
        )
    names = ("query", "priority", "lost at", "restored after", "back after", "downtime", "losses", "relapses")
    text = (
        "Seconds; `lost at` counts from the detection, the two following from the loss. Downtime leaves out the time for"
        " which a query was back before a relapse. `at least`: it had not been seen back when the record ends.\n"
    )
    return ["## Downtime by query\n", text, _table(names, rows)]


def _gaps(story: Story) -> list[str]:
    """Nothing where nothing was skipped."""
    incident = story.incident
    if not (incident.skipped or incident.marked):
        return []
    skipped = [
        (f"`{p}`", str(first), str(last))
        for p, spans in sorted(incident.skipped.items())
        for first, last in spans
    ]
    marked = [
        (f"`{q}`", str(story.priorities.get(q, 1)), str(first), str(last), str(last - first + 1))
        for q, spans in sorted(incident.marked.items())
        for first, last in spans
    ]
    batches = counted(batches_in(incident.marked), "batch", "batches")
    queries = counted(len(incident.marked), "query", "queries")
    text = (
        f"{batches} of {queries} may lack rows, and each of them is marked where it is"
        " shown; all others are as without a failure. Nothing brings these rows back. These partitions began anew, and what"
        " reads them did without their rows:\n"
    )
    return [
        "## Gaps\n",
        text,
        _table(("partition", "without its rows from batch", "to"), skipped),
        _table(("query", "priority", "marked from batch", "to", "batches"), marked),
    ]


def _timeline(story: Story) -> list[str]:
    opened = story.incident.opened_at
    found = entries([story.incident], story.plans)
    rows = [(f"{at - opened:.2f} s", name, detail) for at, name, detail in found]
    return ["## Time line\n", _table(("after", "what", "detail"), rows)]


def _starts(story: Story) -> list[str]:
    """Nothing where no node came, or the record is older than that of starts."""
    starts = story.incident.starts
    if not starts:
        return []
    rows = []
    for node, start in eldest_first(starts):
        took = start.seconds
        cells = [f"{took[phase]:.1f}" if phase in took else "-" for phase in LATER]
        asked = _after(start.at.get(StartPhase.REQUESTED), story.incident.opened_at)
        rows.append((f"`{node}`", asked, *cells))
    text = (
        "`asked for` counts in seconds from the detection, the others from the request until that phase was over; `-`: not"
        " known. Times of several machines are only as comparable as their clocks.\n"
    )
    return ["## Starts of nodes\n", text, _table(("node", "asked for", *LATER), rows)]


def _plans(story: Story) -> list[str]:
    parts = ["## Plans\n"]
    for plan in story.plans:
        parts.append(f"### {plan.id}\n")
        nodes = counted(len(plan.free), "node", "nodes")
        parts.append(f"{plan_summary(plan)}. {sum(plan.free.values())} milli-CPU were free on {nodes}.\n")
        if plan.note:
            parts.append(f"{plan.note}\n")
        if plan.left_out:
            waiting = sorted(plan.left_out, key=lambda query: (-story.priorities.get(query, 1), query))
            rows = [(f"`{query}`", plan.left_out[query]) for query in waiting]
            parts.append(_table(("left out", "why"), rows))
    return parts


def _otherwise(story: Story, found: Counterfactuals | None) -> list[str]:
    parts = ["## What would have been otherwise\n"]
    if found is None:
        return [*parts, "No plan was made in this incident, so there is nothing to compare.\n"]
    down = frozenset(entry.query for entry in story.downtimes)
    rows = [
        _course(found.recorded, "as it happened", found, down),
        _course(found.replayed, "the same by the model", found, down),
    ]
    if found.blocking is not None:
        rows.append(_course(found.blocking, "blocking recovery", found, down))
    if found.one_more is not None:
        rows.append(_course(found.one_more, f"one more node ({found.node_free} milli-CPU)", found, down))
    parts.append(
        _table(("course", "availability lost", "against the record", "queries back", "last one after"), rows)
    )
    parts.append(_sentences(story, found))
    parts.append("Assumed:\n")
    parts.append("\n".join(f"- {line}" for line in found.assumptions) + "\n")
    return parts


def _course(curve: Curve, name: str, found: Counterfactuals, down: frozenset[str]) -> tuple[str, ...]:
    """A row of the table; what one of `down` would have cost after the end of the record is not in it."""
    measured = down <= curve.back.keys()
    difference = curve.lost_s - found.recorded.lost_s
    last = max(curve.back.values(), default=None)
    return (
        name,
        f"{'' if measured else 'at least '}{curve.lost_s:.1f} s",
        "" if curve is found.recorded else f"{difference:+.1f} s",
        str(len(curve.back)),
        "-" if last is None else f"{last:.1f} s",
    )


def _sentences(story: Story, found: Counterfactuals) -> str:
    lines = []
    if found.blocking is not None and found.blocking_at is None:
        lines.append(
            "Blocking recovery would not have ended within the record: as many nodes as before, with room for everything,"
            " were not ready early enough. What it lost is a lower bound."
        )
    if found.one_more is not None:
        base = found.replayed
        earlier = {
            q: base.back.get(q, story.end - story.incident.opened_at) - at
            for q, at in found.one_more.back.items()
        }
        gained = {q: s for q, s in earlier.items() if s > 0.05}
        if gained:
            named = ", ".join(
                f"`{q}` {'' if q in base.back else 'at least '}{s:.1f} s"
                for q, s in sorted(gained.items(), key=lambda item: -item[1])[:10]
            )
            lines.append(f"One more node would have brought back earlier, against the model: {named}.")
        else:
            lines.append("One more node would have brought no query back earlier.")
    return "\n\n".join(lines) + "\n"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells keep their text; what would end a cell is escaped."""
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _after(at: float | None, since: float) -> str:
    return "-" if at is None else f"{at - since:.1f}"


def _utc(at: float) -> str:
    return utc(at).strftime("%Y-%m-%d %H:%M:%S UTC")
