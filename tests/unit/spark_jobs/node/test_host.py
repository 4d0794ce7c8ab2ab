"""The partition host on its own: what a command brings about, what a report says, and what trouble does to whom."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from polars.exceptions import PanicException

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import (
    EncodeError,
    FencedError,
    LateRequestError,
    NotYetError,
    SinkError,
    SourceError,
    StoreError,
)
from reprise.spark_jobs.node.command import Install, Shadow
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.wire import Message, unpack
from reprise.spark_jobs.platform import Platform
from reprise.spark_jobs.sinks import Owner
from tests.support.scripted import ROWS, TEXT, Bench, Script, spans

PARTITIONS = ("in.0", "mid.0", "out.0")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_report_says_how_all_stand(bench: Bench) -> None:
    report = bench.run()
    assert (report.slot, report.host) == (0, "host-1")
    assert report.positions == dict.fromkeys(PARTITIONS, 4)
    assert report.installed == {"in.0": "1.1.0", "mid.0": "1.1.1", "out.0": "1.1.2"}
    assert report.outputs == tuple(("out.0", batch, float(batch)) for batch in (1, 2, 3, 4))
    assert report.counters == {"mid.0": {"last": 4}, "out.0": {"last": 4}}
    assert report.usage.keys() == set(PARTITIONS)
    assert {p: u.input_bytes for p, u in report.usage.items()} == dict.fromkeys(PARTITIONS, 4 * ROWS * 8)
    assert all(u.cpu_s > 0 for u in report.usage.values())
    assert 0 < report.busy_s < 60
    assert (report.failed, report.problems, report.not_kept, report.acks, report.staged) == (
        {},
        (),
        (),
        (),
        0,
    )


@pytest.mark.parametrize("scope", ["global", "auto"])
def test_output_is_kept_for_as_long_as_it_can_be_asked_for(scope: str, tmp_path: Path) -> None:
    """In an incident until a checkpoint covers it; else so, too, or with scope `global` until its reader has applied it."""
    bench = Bench(tmp_path, TEXT.replace("recovery: {", f"recovery: {{scope: {scope}, "))
    few = bench.without("out.0")
    there = {"hosted": few["hosted"], "routes": {**few["routes"], "out.0": 1}}

    def kept(mid: int, out: int, **changes: Any) -> int:
        positions = {**few["positions"], "mid.0": mid, "out.0": out}
        return bench.run(**there, positions=positions, **changes).memory

    everything = kept(0, 0) // 2  # without what `mid` has not been heard to have applied
    if scope == "global":
        assert 0 < kept(4, 2) < everything
        assert kept(4, 4) == 0
    else:
        assert kept(4, 4) == everything
        assert kept(4, 4, covered=Positions(4)) == 0
    later = {"horizon": 8, "ranges": {"in.0": spans(5, 8)}, "retain": True}
    kept(4, 4, **later)
    assert kept(8, 8, **later) == everything
    assert 0 < kept(8, 8, **later, covered=Positions(6)) < everything
    assert kept(8, 8, **later, covered=Positions(6, {"out.0": 8})) == 0


@pytest.mark.parametrize(
    ("scope", "retain", "kept"), [("global", False, False), ("global", True, True), ("auto", False, True)]
)
def test_output_for_who_is_not_at_work_is_kept_in_an_incident_or_by_the_scope_and_no_source_s(
    tmp_path: Path, scope: str, retain: bool, kept: bool
) -> None:
    bench = Bench(tmp_path, TEXT.replace("recovery: {", f"recovery: {{scope: {scope}, "))
    bench.run(**bench.without("out.0"), retain=retain)
    assert bool(bench.host.runtimes["mid.0"].buffers["out.0"].entries) is kept
    bench.run(**bench.without("mid.0", "out.0"), horizon=8, ranges={"in.0": spans(5, 8)}, retain=retain)
    assert bench.host.runtimes["in.0"].position == 8
    assert not {5, 6, 7, 8} & bench.host.runtimes["in.0"].buffers["mid.0"].entries.keys()


def test_who_needs_what_was_given_up_is_named_for_as_long_as_it_is_sent_everything_again(
    bench: Bench,
) -> None:
    few = bench.without("out.0")
    there = {"hosted": few["hosted"], "routes": {**few["routes"], "out.0": 1}, "retain": True}
    positions = {**few["positions"], "out.0": 2}
    bench.run(**there, positions=positions)
    bench.host.runtimes["mid.0"].trim("out.0", 4)
    assert bench.run(**there, positions=positions, resend=("out.0",)).not_kept == ("out.0",)
    assert bench.run(**there, positions=positions).not_kept == ()
    assert bench.run(**there, positions={**positions, "out.0": 4}, resend=("out.0",)).not_kept == ()


def test_an_operator_that_cannot_count_is_a_problem_and_no_failure(bench: Bench) -> None:
    Script.raises["mid.0", "counters"] = KeyError("x")
    report = bench.run()
    assert report.problems == ("mid.0: counters: KeyError: 'x'",)
    assert report.counters == {"out.0": {"last": 4}}
    assert report.positions == dict.fromkeys(PARTITIONS, 4)


def test_what_is_buffered_is_reported_where_it_is(bench: Bench) -> None:
    """Who needs the output is not at work: all of it stays here, in memory and then on disk."""
    few = bench.without("out.0")
    report = bench.run(**few, retain=True)
    assert report.memory > 0
    assert (report.disk, report.spilled) == (0, 0)
    report = bench.run(
        **few, retain=True, horizon=200, ranges={"in.0": spans(5, 200)}, budget_s=20.0, window=999
    )
    assert 0 < report.memory <= 64 * 1024
    assert report.disk == report.spilled > 0


def test_a_report_that_was_lost_is_said_again_and_one_that_was_heard_is_not(bench: Bench) -> None:
    Script.notices = ["row 7 was set aside"]
    first = bench.run(punctuations=(2,))
    assert first.problems == ("in.0: row 7 was set aside",)
    assert "in.0" in [a.partition for a in first.acks]
    assert len(first.outputs) == 4
    again = bench.run(confirmed=0, punctuations=(2,))
    assert (again.problems, again.outputs) == (first.problems, first.outputs)
    assert again.acks[: len(first.acks)] == first.acks
    heard = bench.run(confirmed=2, punctuations=(2,))
    assert (heard.problems, heard.outputs) == ((), ())
    assert "in.0" not in [a.partition for a in heard.acks]


def test_time_is_counted_from_the_beginning_of_each_job(bench: Bench) -> None:
    bench.run()
    now = iter(range(0, 10**6, 3))
    bench.host._platform = Platform(elapsed=lambda: float(next(now)))
    busy = [bench.run(budget_s=1.0).busy_s for _ in range(3)]
    assert busy[0] >= 3.0
    assert busy[2] <= busy[0]


# -- who is hosted -----------------------------------------------------------------------------------------------------


def test_who_is_not_ordered_any_more_is_closed_and_gone(bench: Bench) -> None:
    bench.run()
    report = bench.run(**bench.without("out.0"))
    assert ("out.0", "close", 0) in Script.noted
    assert report.installed == {"in.0": "1.1.0", "mid.0": "1.1.1"}
    assert report.positions.keys() == {"in.0", "mid.0"}


def test_another_installation_begins_anew_and_the_same_one_goes_on(bench: Bench) -> None:
    bench.run()
    hosted = {**bench.command().hosted, "mid.0": "1.2.9"}
    bench.run(hosted=hosted, resend=("mid.0",))
    assert Script.batches("mid.0", "step") == [1, 2, 3, 4, 1, 2, 3, 4]
    assert Script.batches("out.0", "step") == [1, 2, 3, 4]
    assert len([n for n in Script.noted if n[:2] == ("mid.0", "initial")]) == 2


def test_who_has_failed_comes_back_as_another_installation(bench: Bench) -> None:
    Script.raises["mid.0", "step"] = ValueError("no")
    report = bench.run()
    assert report.failed == {
        "mid.0": Failure(FailureKind.POISON, "operator mid, partition mid.0, batch 1: ValueError: no")
    }
    assert report.positions == {"in.0": 4, "out.0": 0}
    Script.raises.clear()
    assert bench.run().failed == report.failed, "not tried again"
    report = bench.run(hosted={**bench.command().hosted, "mid.0": "1.2.9"}, resend=("mid.0",))
    assert report.failed == {}
    assert report.positions == dict.fromkeys(PARTITIONS, 4)


def test_a_new_driver_drops_all_and_the_same_one_nothing(bench: Bench) -> None:
    Script.raises["out.0", "step"] = ValueError("no")
    bench.run()
    writer = bench.host._writer
    bench.run()
    assert bench.host._writer is writer
    Script.raises.clear()
    report = bench.run(epoch=2)
    assert ("in.0", "close", 0) in Script.noted
    assert ("out.0", "close", 0) in Script.noted
    assert report.failed == {}
    assert Script.batches("mid.0", "step") == [1, 2, 3, 4, 1, 2, 3, 4]
    assert not writer._thread.is_alive()


def test_a_host_that_is_closed_has_closed_all(bench: Bench) -> None:
    bench.run()
    bench.host.close()
    assert not bench.host.runtimes
    assert not bench.host._writer._thread.is_alive()
    assert bench.host._budget.memory == 0
    Host("never-used", bench.folder / "other").close()


def test_a_connection_that_does_not_close_is_said_and_stops_nothing(bench: Bench) -> None:
    bench.run()
    Script.raises["out.0", "close"] = RuntimeError("gone already")
    report = bench.run(**bench.without("out.0"))
    assert "out.0: closing: RuntimeError: gone already" in report.problems
    assert "out.0" not in report.installed


def test_orders_that_cannot_be_taken_in_are_not_begun_and_taken_in_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run()
    with monkeypatch.context() as patch:
        patch.setattr(Host, "_refresh", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bench.begin()
    command = bench.host.command
    assert command is not None
    with pytest.raises(LateRequestError, match=r"stage 0 of epoch 1, job 2 refused"):
        bench.host.stage(command.order, 0, [], True)
    bench.host.begin(command)
    assert bench.host.stage(command.order, 0, [], True)[1] is not None


def test_a_topology_that_cannot_be_read_leaves_nothing_of_the_one_before(bench: Bench) -> None:
    bench.run()
    good = bench.resource.document
    with pytest.raises(Exception, match="expected"):
        bench.begin(epoch=2, topology="[]")
    report = bench.run(epoch=2, topology=good)
    assert report.positions == dict.fromkeys(PARTITIONS, 4)


# -- installing --------------------------------------------------------------------------------------------------------


def test_a_sink_is_told_what_it_opens(bench: Bench) -> None:
    bench.run()
    (opening,) = Script.opened
    assert opening.topology == "tests.scripted"
    assert opening.place == Place("out", 0, 1)
    assert opening.owner == Owner(7.5, (1, 1, 2))
    assert opening.position == 0


def test_a_sink_that_is_away_is_opened_again_after_pauses_that_grow(bench: Bench) -> None:
    Script.raises["out.0", "open"] = OSError("no route")
    report = bench.run()
    assert report.installed["out.0"] == "1.1.2"
    assert "out.0" not in report.positions
    assert "out.0" not in report.failed
    assert report.problems == ("out.0: cannot be installed from checkpoint 0 yet: no route",)
    tried = [bench.now]
    for _ in range(40):
        bench.now += 0.25
        before = len(Script.opened)
        bench.run()
        if len(Script.opened) > before:
            tried.append(bench.now)
    assert [b - a for a, b in pairwise(tried)] == [0.5, 1.0, 2.0, 4.0]
    Script.raises.clear()
    bench.now += 8.0
    report = bench.run(resend=("out.0",))
    assert report.positions["out.0"] == 4
    opened = len(Script.opened)
    bench.now += 60.0
    bench.run()
    assert len(Script.opened) == opened, "it is open"


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (FencedError("another one writes"), FailureKind.FENCED, "another one writes"),
        (KeyError("x"), FailureKind.POISON, "partition out.0: KeyError: 'x'"),
    ],
)
def test_trouble_of_a_sink_that_does_not_pass_ends_its_partition(
    bench: Bench, error: Exception, kind: FailureKind, reason: str
) -> None:
    Script.raises["out.0", "open"] = error
    report = bench.run()
    assert report.failed == {"out.0": Failure(kind, reason)}
    bench.now += 60.0
    opened = len(Script.opened)
    bench.run()
    assert len(Script.opened) == opened, "it is not tried again"


def test_a_checkpoint_whose_file_is_missing_ends_the_partition_and_a_store_that_is_away_does_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = {"path": "cp-00000002/mid.0.state", "size": 3, "sha256": "x"}
    (bench.checkpoints / "stream.json").write_text("{}")
    installs = {p: Install(2, file if p == "mid.0" else None) for p in PARTITIONS}

    def away(*_: object) -> None:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr("reprise.spark_jobs.state.checkpoints.CheckpointStore.read_state", away)
        report = bench.run(installs=installs)
    assert report.problems == ("mid.0: cannot be installed from checkpoint 2 yet: away",)
    assert not report.failed
    bench.now += 1.0
    report = bench.run(installs=installs)
    assert report.failed["mid.0"].kind is FailureKind.CHECKPOINT
    assert "missing" in report.failed["mid.0"].reason


def test_a_partition_that_begins_later_is_sent_nothing_that_it_has_applied(bench: Bench) -> None:
    """`mid` is installed from the beginning, while its reader, on another node, is at batch 3."""
    few = bench.without("out.0")
    routes, positions = {**few["routes"], "out.0": 1}, {**few["positions"], "out.0": 3}
    command = bench.begin(hosted=few["hosted"], routes=routes, positions=positions)
    ((slot, bundle),) = bench.sent(command)
    assert slot == 1
    assert [m.batch for m in unpack(bundle)] == [4]


def test_a_loop_without_state_begins_again_with_nothing_fed_back(tmp_path: Path) -> None:
    """Its checkpoint has no file, and the batch after it still needs something of the one before."""
    loop = TEXT.replace("inputs: [{from: in}]", "inputs: [{from: in}, {from: back, feedback: true}]").replace(
        "  checkpoint:",
        '    - {name: back, class: "reprise.spark_jobs.operators:Filter", with: {where: "n < 0"}, inputs: [{from: mid}]}\n'
        "  checkpoint:",
    )
    bench = Bench(tmp_path, loop)
    order = bench.topology.order
    assert "back.0" in order
    report = bench.run(
        installs={p: Install(3) for p in order},
        positions=dict.fromkeys(order, 3),
        ranges={"in.0": spans(4, 6)},
        horizon=6,
    )
    assert not report.failed
    assert report.positions == dict.fromkeys(order, 6)


def test_a_delta_that_comes_after_its_standby_was_promoted_is_discarded(tmp_path: Path) -> None:
    """`mid` reads itself; an active standby of it is sent what `mid` gives itself."""
    text = TEXT.replace("inputs: [{from: in}]", "inputs: [{from: in}, {from: mid, feedback: true}]")
    bench, late = Bench(tmp_path, text), Message("mid.0", "mid.0", 2, None, None)
    bench.begin()
    inbox = bench.host.runtimes["mid.0"].inbox["mid.0"]
    bench.host.deliver(late)
    assert inbox == {}
    bench.begin(standbys={"mid.0": Shadow(0, 0, False, 0)})
    bench.host.deliver(late)
    assert inbox == {2: late}


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_a_problem_between_two_jobs_is_in_the_next_report_and_in_no_later_one(bench: Bench) -> None:
    """Where an exchange carries messages, partitions move between jobs."""
    Script.raises["in.0", "read"] = SourceError("no route")
    assert bench.run(link=1).problems == ()
    bench.host.run(1.0)
    Script.raises.clear()
    said = ("in.0: batch 1 waits: no route",)
    assert bench.run(link=1, confirmed=1).problems == said
    assert bench.run(link=1, confirmed=1).problems == said, "that report did not arrive"
    assert bench.run(link=1, confirmed=3).problems == ()


def test_a_source_that_cannot_be_read_is_asked_again(bench: Bench) -> None:
    Script.raises["in.0", "read"] = SourceError("no route")
    report = bench.run()
    assert report.problems == ("in.0: batch 1 waits: no route",)
    assert not report.failed
    Script.raises["in.0", "read"] = NotYetError("on their way")
    assert bench.run(confirmed=1).problems == ()
    Script.raises.clear()
    assert bench.run(confirmed=2).positions == dict.fromkeys(PARTITIONS, 4)


def test_memory_that_is_short_ends_no_partition(bench: Bench) -> None:
    Script.raises["mid.0", "freeze"] = MemoryError()
    command = bench.begin(punctuations=(2,))
    with pytest.raises(MemoryError):
        bench.host.stage(command.order, 0, [], True)
    assert not bench.host.failed


def test_a_state_that_cannot_be_frozen_ends_its_partition_with_the_batch(bench: Bench) -> None:
    Script.raises["mid.0", "freeze"] = KeyError("x")
    report = bench.run(punctuations=(2,))
    assert report.failed == {
        "mid.0": Failure(FailureKind.POISON, "operator mid, partition mid.0, batch 2: KeyError: 'x'")
    }
    assert "mid.0" not in report.positions


def test_code_that_panics_ends_its_partition_with_the_batch(bench: Bench) -> None:
    """Which is no Exception of Python."""
    Script.raises["mid.0", "step"] = PanicException("no such type")
    report = bench.run()
    assert report.failed == {
        "mid.0": Failure(
            FailureKind.POISON, "operator mid, partition mid.0, batch 1: PanicException: no such type"
        )
    }


def test_what_was_frozen_is_stored_under_its_installation(bench: Bench) -> None:
    report = bench.run(punctuations=(2,))
    bench.host.close()
    acks, _ = bench.host._writer.collect()
    found = {a.partition: a for a in (*report.acks, *acks)}
    assert found.keys() == set(PARTITIONS)
    assert {a.position for a in found.values()} == {2}
    assert {p: a.installation for p, a in found.items()} == {
        "in.0": "1.1.0",
        "mid.0": "1.1.1",
        "out.0": "1.1.2",
    }
    assert found["in.0"].file is None
    assert found["mid.0"].file is not None
    assert (bench.checkpoints / found["mid.0"].file["path"]).exists()


def test_a_job_without_new_ranges_goes_on_with_those_that_are_known(bench: Bench) -> None:
    bench.run(horizon=2)
    assert bench.run(ranges={}).positions == dict.fromkeys(PARTITIONS, 4)


@pytest.mark.parametrize(
    ("error", "problems", "failed"),
    [
        (SinkError("no route"), ("out.0: output waits: SinkError: no route",), None),
        (KeyError("x"), ("out.0: output waits: KeyError: 'x'",), None),
        (FencedError("later"), (), Failure(FailureKind.FENCED, "later")),
        (
            EncodeError("no such type"),
            (),
            Failure(FailureKind.POISON, "operator out, partition out.0, batch 4: EncodeError: no such type"),
        ),
    ],
)
def test_what_a_sink_raises_while_it_settles(
    bench: Bench, error: Exception, problems: tuple[str, ...], failed: Failure | None
) -> None:
    Script.late = True
    Script.raises["out.0", "settle"] = error
    report = bench.run()
    assert report.problems == problems
    assert report.failed == ({} if failed is None else {"out.0": failed})
    assert report.positions.get("out.0") == (0 if failed is None else None)


def test_a_sink_says_what_is_in_its_way_and_the_state_waits_for_what_it_shows(bench: Bench) -> None:
    Script.late, Script.trouble = True, "brokers are away"
    report = bench.run(punctuations=(2,))
    assert report.problems == ("out.0: output waits: brokers are away",)
    assert report.positions["out.0"] == 0
    assert Script.batches("out.0", "step") == [1, 2], "it goes no further than the state that it owes"
    assert not Script.batches("out.0", "freeze")
    Script.trouble = None
    report = bench.run(punctuations=(2,), confirmed=1)
    assert Script.batches("out.0", "freeze") == [2]
    assert [batch for _, batch, _ in report.outputs] == [1, 2]
    report = bench.run(punctuations=(2,), confirmed=2)
    assert report.positions["out.0"] == 4


def test_the_same_order_again_changes_nothing(bench: Bench) -> None:
    command = bench.begin()
    first = bench.host.stage(command.order, 0, [], False)
    bench.host.begin(command)
    assert bench.host.stage(command.order, 0, [], False) is first


def test_nothing_goes_out_for_who_is_here_or_at_work_nowhere(bench: Bench) -> None:
    assert list(bench.sent(bench.begin())) == []
    assert list(bench.sent(bench.begin(**bench.without("out.0"), retain=True, epoch=2))) == []


def test_rows_of_one_node_for_another_go_out_once(bench: Bench) -> None:
    few = bench.without("out.0")
    routes, positions = {**few["routes"], "out.0": 1}, {**few["positions"], "out.0": 0}
    there = {"hosted": few["hosted"], "routes": routes, "positions": positions}
    command = bench.begin(**there, window=3)
    ((_, bundle),) = bench.sent(command)
    messages = list(unpack(bundle))
    assert [(m.source, m.target, m.batch, m.watermark) for m in messages] == [
        ("mid.0", "out.0", batch, batch) for batch in (1, 2, 3)
    ]
    assert messages[0].table == pa.table({"n": list(range(ROWS))})
    assert list(bench.sent(bench.begin(**there, window=3))) == []
    later = {**there, "positions": {**positions, "out.0": 1}}
    command = bench.begin(**later)
    ((_, bundle),) = bench.sent(command)
    assert [m.batch for m in unpack(bundle)] == [4]
    command = bench.begin(**later, window=2, resend=("out.0",))
    ((_, bundle),) = bench.sent(command)
    assert [m.batch for m in unpack(bundle)] == [2, 3], "what it has applied is not sent again"
