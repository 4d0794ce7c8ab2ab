"""What messages say for communication-induced checkpoints, on its way between partitions and into snapshots and back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from reprise.algorithms.communication_induced import size_of
from reprise.spark_jobs.contract import Source
from reprise.spark_jobs.node.buffers import Budget, EdgeBuffer
from reprise.spark_jobs.node.channels import CHANNELS, SCHEMA, held, put_back, table_of
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.induced import INDUCED, begin
from reprise.spark_jobs.node.local_state import frozen
from reprise.spark_jobs.node.runtime import OperatorRuntime, SourceRuntime
from reprise.spark_jobs.node.wire import Message, encode_table, pack, unpack
from reprise.spark_jobs.state.state_file import decode_state, encoded
from reprise.spark_jobs.topology import Topology, expand, load_text, make_operator, make_source
from tests.unit.spark_jobs.node.test_runtime import TEXT

COMMAND = Command(job=1, epoch=1, slot=0, topology="", sink="", checkpoints="")


RESOURCE = load_text(TEXT)
TOPOLOGY = expand(RESOURCE)


@pytest.fixture
def budget(tmp_path: Path) -> Budget:
    return Budget(2**20, 0, tmp_path)


def made(partition: str, budget: Budget, topology: Topology = TOPOLOGY, position: int = 0) -> OperatorRuntime:
    spec = topology.partitions[partition]
    operator = make_operator(RESOURCE.operator(spec.place.operator))
    runtime = OperatorRuntime(spec, operator, operator.initial(spec.place), position, budget, None)
    begin(runtime, topology, None)
    return runtime


def test_a_bundle_carries_what_is_said_once_for_all_targets_of_a_node() -> None:
    said, other = b"\1" * 999, b"\2" * 5
    rows = encode_table(pa.table({"n": [1]}))
    messages = [
        (Message("a.0", f"b.{k}", batch, 7, None, header), rows if k % 2 else b"")
        for batch, header in ((1, said), (2, other), (3, b""))
        for k in range(4)
    ]
    bundle = pack(messages)
    assert bundle.count(said) == 1
    found = {(m.target, m.batch): m for m in unpack(bundle)}
    assert len(found) == len(messages)
    for before, body in messages:
        after = found[before.target, before.batch]
        assert (after.header, after.watermark) == (before.header, 7)
        assert (after.table is not None) == bool(body)


def test_where_nothing_is_said_bundles_and_logs_are_as_they_were(budget: Budget) -> None:
    bundle = pack([(Message("a.0", "b.0", 1, None, None), b"")])
    assert bundle.endswith(b'[["a","b",[[0,1,null,[0]]]]]')
    buffer = EdgeBuffer("a.0", "b.0", budget)
    buffer.put(1, None, b"x")
    assert table_of(held(buffer, 1, 1)).schema.equals(SCHEMA)


def test_output_in_a_log_says_what_it_said(budget: Budget) -> None:
    buffer = EdgeBuffer("a.0", "b.0", budget)
    buffer.put(1, None, b"x", header=b"said")
    buffer.put(2, 5, b"", header=b"more")
    again = EdgeBuffer("a.0", "b.0", budget)
    put_back({"b.0": again}, table_of(held(buffer, 1, 2)))
    assert [(m.batch, m.watermark, m.header, body) for m, body in again.pending(0, 9)] == [
        (1, None, b"said", b"x"),
        (2, 5, b"more", b""),
    ]


def many_channels(budget: Budget) -> tuple[dict[str, EdgeBuffer], dict[str, EdgeBuffer]]:
    """Output of 20 batches for 30 targets, each batch with a header of 5 kB; and the same buffers without anything."""
    full, empty = ({f"b.{k}": EdgeBuffer("a.0", f"b.{k}", budget) for k in range(30)} for _ in range(2))
    for buffer in full.values():
        for batch in range(1, 21):
            buffer.put(batch, batch, b"x", header=bytes([batch]) * 5000)
    return full, empty


def contents(buffers: dict[str, EdgeBuffer]) -> dict[str, list[tuple[int, bytes, bytes]]]:
    return {t: [(m.batch, m.header, body) for m, body in b.pending(0, 99)] for t, b in buffers.items()}


def test_a_log_has_what_a_batch_says_once_and_not_for_each_target(budget: Budget) -> None:
    full, empty = many_channels(budget)
    rows = [row for buffer in full.values() for row in held(buffer, 1, 20)]
    stored = b"".join(bytes(piece) for piece in encoded({CHANNELS: table_of(rows)}))
    assert len(stored) < 20 * 5000 + 60_000  # each for itself they were 3 MB
    put_back(empty, decode_state(stored)[CHANNELS])
    assert contents(empty) == contents(full)
    said = [entry.header for buffer in empty.values() for entry in buffer.entries.values()]
    assert len({id(header) for header in said}) == 20, "nor in memory"


def test_a_log_of_before_with_a_header_in_each_row_is_read(budget: Budget) -> None:
    full, empty = many_channels(budget)
    rows = [row for buffer in full.values() for row in held(buffer, 1, 20)]
    table = table_of(rows)
    column = pa.array([row.header for row in rows], pa.large_binary())
    before = table.drop_columns(["header"]).append_column("header", column)
    stored = b"".join(bytes(piece) for piece in encoded({CHANNELS: before}))
    put_back(empty, decode_state(stored)[CHANNELS])
    assert contents(empty) == contents(full)


def headers(runtime: OperatorRuntime) -> dict[int, set[bytes]]:
    """What is said with each batch, to whatever target."""
    found: dict[int, set[bytes]] = {}
    for target in runtime.buffers:
        runtime.rewind(target, 0)
        for message, _ in runtime.pending(target, 0, 99):
            found.setdefault(message.batch, set()).add(message.header)
    return found


def test_all_messages_of_a_batch_say_the_same_and_say_it_again_when_they_are_sent_again(
    budget: Budget,
) -> None:
    runtime = made("mid.0", budget)
    for batch in (1, 2):
        for source in ("in.0", "in.1", "back.0"):
            runtime.deliver(Message(source, "mid.0", batch, None, None))
        assert not runtime.forced
        assert runtime.advance(lambda _: True)
        if batch == 1:
            before = headers(runtime)
            assert runtime.induced is not None and not runtime.induced.stores(1)
    said = headers(runtime)
    assert len(runtime.buffers) > 2 and {len(of_batch) for of_batch in said.values()} == {1}
    assert said[1] == before[1] != said[2]
    assert {len(h) for of_batch in said.values() for h in of_batch} == {size_of(len(TOPOLOGY.partitions))}


def test_what_is_known_is_stored_and_taken_in_again_by_the_same_list_of_partitions(budget: Budget) -> None:
    runtime = made("mid.0", budget)
    for source in ("in.0", "in.1", "back.0"):
        runtime.deliver(Message(source, "mid.0", 1, None, None))
    runtime.advance(lambda _: True)
    local = frozen(runtime, [], COMMAND)
    assert local.encode is not None and not local.forced
    tables = local.encode()
    assert runtime.induced is not None
    said = runtime.induced.said()
    again, other = made("mid.0", budget, position=1), made("mid.0", budget, position=1)
    begin(again, TOPOLOGY, tables)
    assert again.induced is not None and again.induced.said() == said
    other.buffers["back.0"].put(1, None, b"", header=b"of another list")
    renamed = pa.table({"order": [0], "knowledge": tables[INDUCED]["knowledge"]})
    begin(other, TOPOLOGY, {**tables, INDUCED: renamed})
    assert other.induced is not None and other.induced.said() != said
    assert other.buffers["back.0"].entries[1].header == b""


def test_partition_stores_itself_at_most_once_at_a_position(budget: Budget) -> None:
    """What comes back of its own earlier life may ask for a snapshot that is there."""
    runtime, other = made("mid.0", budget, position=3), made("back.0", budget, position=3)
    assert runtime.induced is not None and other.induced is not None
    first = Message("mid.0", "back.0", 4, None, None, runtime.induced.said())
    other.induced.received(3, [first])
    other.induced.stores(4)
    back = Message("back.0", "mid.0", 4, None, None, other.induced.said())
    assert not runtime.induced.forced(3, [back]), "it was restored at 3"
    assert runtime.induced.forced(4, [back])
    assert runtime.induced.stores(4), "messages have forced it"
    assert not runtime.induced.forced(5, [back])


def test_a_source_says_what_it_knows_now_with_what_it_reads_again_and_stores_it(budget: Budget) -> None:
    spec = TOPOLOGY.partitions["in.0"]
    source: Source = make_source(RESOURCE.source("in"))
    runtime = SourceRuntime(spec, source, 0, budget)
    begin(runtime, TOPOLOGY, None)
    assert runtime.induced is not None and not runtime.forced
    before = runtime.header
    local = frozen(runtime, [], COMMAND)
    assert local.encode is not None
    tables = local.encode()
    assert runtime.header != before
    again = SourceRuntime(spec, source, 0, budget)
    again.restore(tables)
    begin(again, TOPOLOGY, tables)
    assert again.header == runtime.header
