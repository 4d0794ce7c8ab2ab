"""What `reprise explain --checkpoint` prints: tables of figures, and below them what each rests on.

A figure is printed with `m`, measured by this topology, `d`, derived by a formula from what it has measured, or as `?`, not
known; the formulas and reasons are listed once each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from reprise.algorithms.checkpoint_costs import Figure, Source
from reprise.controller.analysis.checkpointing import CheckpointOutlook, ProtocolOutlook, checkpoint_outlook
from reprise.controller.analysis.node_losses import NodeLoss
from reprise.controller.cli.render import for_programs, plain_table, span
from reprise.controller.cli.target import Address

LEGEND = (
    "m: measured by this topology; d: derived by a formula from what it has measured; ?: not known; "
    "< at most, > at least, ~ about"
)
OF_A_LOSS = "a loss: with room on one other node, and without catching up with what comes in meanwhile"
MARKS = {Source.MEASURED: " m", Source.DERIVED: " d", Source.UNKNOWN: ""}
BOUNDS = {"at most": "< ", "at least": "> ", "about": "~ "}
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
        Console().print(checkpoint_page(found, output == "wide"))


def checkpoint_page(found: CheckpointOutlook, wide: bool = False) -> RenderableType:
    """The protocols, a loss of each node under the current one, and under the others that of the node that takes longest;
    `wide`: of every node."""
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
    rows = [(p, loss) for p in shown for loss in _chosen(p, wide)]
    for current in (True, False):
        parts += _losses([(p, loss) for p, loss in rows if p.current is current], current, shown)
    if shown:
        parts += [Text(), Text("what they rest on", style="bold")]
        parts += _bases([*_of_costs(shown), *_of_losses(rows)])
        parts += [Text(), Text(LEGEND, style="dim"), Text(OF_A_LOSS, style="dim")]
    return Group(*parts)


def _name(protocol: ProtocolOutlook) -> str:
    return protocol.protocol if protocol.log == "none" else f"{protocol.protocol}/{protocol.log}"


def _costs(protocols: Sequence[ProtocolOutlook]) -> Table:
    table = plain_table()
    table.add_column("protocol/log")
    for name in ("stored", "headers", "output kept", "a round takes", "all lost: repeats"):
        table.add_column(name, justify="right")
    for protocol in protocols:
        costs = protocol.costs
        assert costs is not None
        table.add_row(
            Text(
                _name(protocol) + (" (now)" if protocol.current else ""),
                style="bold" if protocol.current else "",
            ),
            _shown(costs.stored, lambda x: f"{_size(x)}/s"),
            _shown(costs.headers, lambda x: f"{_size(x)}/s"),
            _shown(costs.kept, _size),
            "-" if costs.round_s is None else _shown(costs.round_s, span),
            _shown(costs.total_s, span),
        )
    return table


def _chosen(protocol: ProtocolOutlook, wide: bool) -> list[NodeLoss]:
    """The losses that are printed."""
    every = _slowest_first(protocol.losses)
    return every if wide else every[: MOST_NODES if protocol.current else 1]


def _losses(
    rows: Sequence[tuple[ProtocolOutlook, NodeLoss]], current: bool, protocols: Sequence[ProtocolOutlook]
) -> list[RenderableType]:
    """A table of losses, and why who goes back does."""
    if not rows:
        return []
    table = plain_table()
    table.add_column("protocol/log")
    table.add_column("node lost")
    for name in ("partitions", "go back", "stream", "rows", "to read", "seconds"):
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
    every = sum(len(p.losses) for p in protocols if p.current is current)
    more = (
        f"; {every - len(rows)} that take no longer are left out: -o wide has all"
        if every > len(rows)
        else ""
    )
    said = "if a node were lost now" if current else "with another protocol, the node that takes longest"
    parts: list[RenderableType] = [Text(), Text(f"{said}{more}", style="bold"), table]
    whys: dict[str, list[str]] = {}
    for protocol, loss in rows:
        whys.setdefault(loss.why, []).append(_name(protocol))
    parts += [Text(f"  {', '.join(dict.fromkeys(names))}: {why}") for why, names in whys.items()]
    if assumed := sorted({part for _, loss in rows for part in loss.assumed}):
        parts.append(Text(f"  * rests on parts that were not measured here yet: {', '.join(assumed)}"))
    return parts


def _of_costs(protocols: Sequence[ProtocolOutlook]) -> Iterator[tuple[str, str, Figure]]:
    """The name of each figure, its protocol, and itself."""
    for protocol in protocols:
        costs = protocol.costs
        assert costs is not None
        named = (
            ("stored", costs.stored),
            ("headers", costs.headers),
            ("output kept", costs.kept),
            ("a round takes", costs.round_s),
            ("all lost: repeats", costs.total_s),
        )
        yield from ((name, _name(protocol), figure) for name, figure in named if figure is not None)


def _of_losses(rows: Iterable[tuple[ProtocolOutlook, NodeLoss]]) -> Iterator[tuple[str, str, Figure]]:
    for protocol, loss in rows:
        named = (
            ("stream", loss.stream_s),
            ("rows", loss.rows),
            ("to read", loss.read),
            ("seconds", loss.seconds),
        )
        yield from ((name, _name(protocol), figure) for name, figure in named)


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
