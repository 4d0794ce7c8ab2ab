"""What `reprise explain --checkpoint` prints: tables of figures, and below them what each rests on.

A figure is printed with `m`, measured by this topology, `d`, derived by a formula from what it has measured, or as `?`, not
known; the formulas and reasons are listed once each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reprise.algorithms.checkpoint_costs import Figure, Source
from reprise.controller.analysis.checkpointing import CheckpointOutlook, ProtocolOutlook, checkpoint_outlook
from reprise.controller.analysis.node_losses import NodeLoss
from reprise.controller.analysis.protocol_costs import Costs
from reprise.controller.cli.render import for_programs, plain_console, plain_table, span
from reprise.controller.cli.target import Address

LEGEND = (
    "m: measured by this topology; d: derived by a formula from what it has measured; ?: not known; "
    "< at most, > at least, ~ about"
)
OF_A_LOSS = "a loss: with room on one other node, and without catching up with what comes in meanwhile"
NOW = " now"
MARKS = {Source.MEASURED: " m", Source.DERIVED: " d", Source.UNKNOWN: ""}
BOUNDS = {"at most": "<", "at least": ">", "about": "~"}
MOST_NODES = 10
"""Whose loss is printed; -o wide and the JSON have all."""


def explain_checkpoints(address: Address, words: Sequence[str], output: str) -> None:
    """Ask the topology that is meant, and print."""
    if len(words) > 1:
        raise click.UsageError("with --checkpoint no query is named: give NAME, or nothing")
    if words:
        address = replace(address, name=words[0])
    with address.open() as target:
        found = checkpoint_outlook(target.resource(), target.observation(), address.on_cluster)
    if not for_programs(found, output):
        plain_console().print(checkpoint_page(found, output == "wide"))


def checkpoint_page(found: CheckpointOutlook, wide: bool = False) -> RenderableType:
    """What the protocols cost, a loss of each node now, and with each protocol that of the node that takes longest; `wide`:
    of every node."""
    parts: list[RenderableType] = [
        Text(f"{found.topology}: what checkpoints cost, by its own figures", style="bold")
    ]
    if found.not_calm:
        parts.append(Text(f"no figures now: {found.not_calm}", style="yellow"))
    shown = [p for p in found.protocols if p.costs is not None]
    if shown:
        parts.append(_costs(shown))
    for protocol in found.protocols:
        parts += [Text(f"{_name(protocol)} is refused: {why}") for why in protocol.refused]
        parts += [Text(f"{_name(protocol)}: {warning}", style="yellow") for warning in protocol.warnings]
    now = [(p, loss) for p in shown for loss in _chosen(p.losses_now, MOST_NODES, wide)]
    parts += _losses("if a node were lost now", now, sum(len(p.losses_now) for p in shown))
    then = [(p, loss) for p in shown for loss in _chosen(p.losses, 1, wide)]
    heading = (
        "by the same formulas for each protocol, just before the next snapshots: the node that takes longest"
    )
    parts += _losses(heading, then, sum(len(p.losses) for p in shown))
    if shown:
        parts += [Text(), Text("what they rest on", style="bold")]
        parts += _bases([*_of_costs(shown), *_of_losses(now, NOW), *_of_losses(then)])
        parts += [Text(), Text(LEGEND, style="dim"), Text(OF_A_LOSS, style="dim")]
    return Group(*parts)


def _name(protocol: ProtocolOutlook) -> str:
    """The name of a protocol, with its log where it may have several."""
    return (
        f"{protocol.protocol}/{protocol.log}" if protocol.protocol == "uncoordinated" else protocol.protocol
    )


def _costs(protocols: Sequence[ProtocolOutlook]) -> Table:
    table = plain_table()
    table.add_column("protocol", no_wrap=True)
    for name in ("stored", "headers", "output kept", "a round", "all lost"):
        table.add_column(name, justify="right")
    for name, costs in _rows(protocols):
        table.add_row(
            Text(name, style="bold" if name.endswith(NOW) else ""),
            _shown(costs.stored, lambda x: f"{_size(x)}/s"),
            _shown(costs.headers, lambda x: f"{_size(x)}/s"),
            _shown(costs.kept, _size),
            "-" if costs.round_s is None else _shown(costs.round_s, span),
            _shown(costs.total_s, span),
        )
    return table


def _rows(protocols: Sequence[ProtocolOutlook]) -> Iterator[tuple[str, Costs]]:
    """What the current one costs now, then what each would cost."""
    yield from ((f"{_name(p)}{NOW}", p.costs_now) for p in protocols if p.costs_now is not None)
    yield from ((_name(p), p.costs) for p in protocols if p.costs is not None)


def _chosen(losses: Sequence[NodeLoss], most: int, wide: bool) -> list[NodeLoss]:
    """The losses that are printed."""
    every = _slowest_first(losses)
    return every if wide else every[:most]


def _losses(
    heading: str, rows: Sequence[tuple[ProtocolOutlook, NodeLoss]], every: int
) -> list[RenderableType]:
    """A table of losses, and why who goes back does.  `every`: how many there are."""
    if not rows:
        return []
    table = plain_table()
    table.add_column("protocol", no_wrap=True)
    table.add_column("node lost", no_wrap=True)
    for name in ("lost", "back", "stream", "rows", "to read", "seconds"):
        table.add_column(name, justify="right")
    for protocol, loss in rows:
        table.add_row(
            _name(protocol),
            loss.node,
            str(len(loss.lost)) + (f" and {len(loss.promoted)} standbys go on" if loss.promoted else ""),
            "?" if loss.back is None else str(len(loss.back)),
            _shown(loss.stream_s, span),
            _shown(loss.rows, lambda x: f"{x:,.0f}"),
            _shown(loss.read, _size),
            _shown(loss.seconds, span) + (" *" if loss.assumed else ""),
        )
    more = (
        f"; {every - len(rows)} that take no longer are left out: -o wide has all"
        if every > len(rows)
        else ""
    )
    parts: list[RenderableType] = [Text(), Text(f"{heading}{more}", style="bold"), table]
    whys: dict[str, list[str]] = {}
    for protocol, loss in rows:
        whys.setdefault(loss.why, []).append(_name(protocol))
    parts += [Text(f"  {', '.join(dict.fromkeys(names))}: {why}") for why, names in whys.items()]
    if assumed := sorted({part for _, loss in rows for part in loss.assumed}):
        parts.append(Text(f"  * rests on parts that were not measured here yet: {', '.join(assumed)}"))
    return parts


def _of_costs(protocols: Sequence[ProtocolOutlook]) -> Iterator[tuple[str, str, Figure]]:
    """The name of each figure, its protocol, and itself."""
    for protocol, costs in _rows(protocols):
        named = (
            ("stored", costs.stored),
            ("headers", costs.headers),
            ("output kept", costs.kept),
            ("a round", costs.round_s),
            ("all lost", costs.total_s),
        )
        yield from ((name, protocol, figure) for name, figure in named if figure is not None)


def _of_losses(
    rows: Iterable[tuple[ProtocolOutlook, NodeLoss]], when: str = ""
) -> Iterator[tuple[str, str, Figure]]:
    for protocol, loss in rows:
        named = (
            ("stream", loss.stream_s),
            ("rows", loss.rows),
            ("to read", loss.read),
            ("seconds", loss.seconds),
        )
        yield from ((name, f"{_name(protocol)}{when}", figure) for name, figure in named)


def _slowest_first(losses: Iterable[NodeLoss]) -> list[NodeLoss]:
    """Those of which it is not known first."""
    return sorted(losses, key=lambda loss: (loss.seconds.value is not None, -(loss.seconds.value or 0.0)))


def _bases(figures: Iterable[tuple[str, str, Figure]]) -> list[RenderableType]:
    """A line for each thing that figures rest on, with those that do."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, protocol, figure in figures:
        protocols = found.setdefault(f"{figure.source.value}: {figure.basis}", {}).setdefault(name, [])
        if protocol not in protocols:
            protocols.append(protocol)
    return [Text(f"  {_named(names)}: {basis}", style="dim") for basis, names in found.items()]


def _named(names: Mapping[str, Sequence[str]]) -> str:
    """The figures, with their protocols."""
    by_protocols: dict[str, list[str]] = {}
    for name, protocols in names.items():
        by_protocols.setdefault(", ".join(protocols), []).append(name)
    return "; ".join(f"{', '.join(some)} of {protocols}" for protocols, some in by_protocols.items())


def _shown(figure: Figure, form: Callable[[float], str]) -> str:
    if figure.value is None:
        return "?"
    return f"{BOUNDS.get(figure.bound, '')}{form(figure.value)}{MARKS[figure.source]}"


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
