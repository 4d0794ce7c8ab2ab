"""What ways to be available cost in bytes of messages: what goes to standbys, and what nodes are told of them and of output
that upstream backup needs no more; counted here once more, on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.observability.metrics.driver import DriverMetrics
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.orders import Orders
from reprise.spark_jobs.node.wire import encode_table, unpack
from reprise.spark_jobs.topology import load_text
from tests.support.hashtags import SKIPPED
from tools.testbed.local_engine import World, past

NODES = ("a", "b", "c", "d", "e")
AT = {
    "tweets.0": "a", "tweets.1": "b", "parse.0": "c", "parse.1": "b",
    "window.0": "d", "window.1": "b", "window.2": "a", "best.0": "b", "all.0": "a",
}  # fmt: skip
STANDBY = NODES.index("e")
"""The slot of a node that has standbys alone."""
NAME = {"topology": "default/skipped"}


class Counted:
    """Bytes of rows, states and outputs by whether they go to the node of the standbys, and of what orders say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.standbys = self.told = 0
        stage, read = Host.stage, Orders.read

        def counted_stage(host: Host, *arguments: Any) -> Any:
            bundles, report = stage(host, *arguments)
            for slot, bundle in bundles:
                size = sum(len(encode_table(message.table)) for message in unpack(bundle))
                self.rows, self.standbys = (
                    (self.rows, self.standbys + size)
                    if slot == STANDBY
                    else (self.rows + size, self.standbys)
                )
            return bundles, report

        def counted_read(orders: Orders, data: bytes) -> Any:
            raw = json.loads(data)
            said = {name: raw[name] for name in ("standbys", "causes") if name in raw}
            if said and (others := raw.get("covered", {}).get("others")):
                said["others"] = others
            self.told += written(said)
            return read(orders, data)

        monkeypatch.setattr(Host, "stage", counted_stage)
        monkeypatch.setattr(Orders, "read", counted_read)


def written(said: Mapping[str, object]) -> int:
    """Bytes of these members, with the commas between what stands together."""
    apart = [{k: v} for k, v in said.items() if k == "others"] + [
        {k: v for k, v in said.items() if k != "others"}
    ]
    return sum(len(json.dumps(one, separators=(",", ":"))) - 2 for one in apart if one)


def counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str, names: Sequence[str] = ("window",)
) -> tuple[World, Counted]:
    """A world that has come to batch 35 with these operators in a mode."""
    monkeypatch.setattr(engine_module, "WINDOW", 3)
    found = Counted(monkeypatch)
    changes: dict[str, Any] = {f"operators[{name}].availability": mode for name in names}
    if mode == "passive-standby":
        changes |= {f"operators[{name}].standby": {"every": 3} for name in names}
    world = World(load_text(SKIPPED, changes=changes), folder, "w")
    world.engine.begin(0)
    world.nodes.start(*NODES)
    standbys = {"window.0": "e", "window.1": "e"} if mode.endswith("-standby") else {}
    world.want(1, 0, AT, standbys=standbys)
    world.run(past(35))
    return world, found


@pytest.mark.parametrize("mode", ["active-standby", "passive-standby", "upstream-backup", "checkpoint"])
def test_what_goes_to_standbys_and_what_nodes_are_told_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    world, found = counted(tmp_path, monkeypatch, mode)
    figures = world.engine.figures
    assert (figures.message_bytes, figures.standby_bytes) == (found.rows, found.standbys)
    assert figures.acknowledgement_bytes == found.told
    assert (found.standbys > 0, found.told > 0) == (mode.endswith("-standby"), mode != "checkpoint")
    told = world.engine.progress.stored
    assert (told["standby_bytes"], told["acknowledgement_bytes"]) == (found.standbys, found.told)
    value = DriverMetrics(world.engine, lambda: "connected").registry.get_sample_value
    assert value("reprise_standby_bytes_total", NAME) == found.standbys
    assert value("reprise_acknowledgement_bytes_total", NAME) == found.told
