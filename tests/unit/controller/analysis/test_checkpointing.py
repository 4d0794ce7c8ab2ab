"""What `reprise explain --checkpoint` says: numbers that follow from records, each with what it rests on, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from rich.console import Console

from reprise.algorithms.checkpoint_costs import Figure, Source
from reprise.algorithms.communication_induced import size_of
from reprise.algorithms.recovery_time import INSTALL_S
from reprise.controller.analysis.checkpointing import CheckpointOutlook, ProtocolOutlook, checkpoint_outlook
from reprise.controller.analysis.node_losses import NodeLoss
from reprise.controller.analysis.protocol_costs import Known
from reprise.controller.cli.checkpoint_page import checkpoint_page
from reprise.controller.status import observation, records
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.records import CheckpointRecord
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, check, expand, load_text, override
from tests.support.oncall import after_the_burst
from tests.support.oncall import resource as oncall_resource
from tests.unit.controller.status.test_document import DESIRED, PROGRESS, TOPOLOGY, WELL
from tests.unit.controller.status.test_recovery_time import STATS

RESOURCE = override(load_text(TOPOLOGY), {"checkpoint.interval": "10s"})
BATCH_S = RESOURCE.batch_interval_s
ROWS_S = 10.0
SEEN = replace(
    WELL,
    stats={p: replace(s, input_rows_s=ROWS_S) for p, s in STATS.items()},
    progress=replace(
        PROGRESS,
        kept_since=6,
        buffers={"memory": 300, "disk": 100},
        overhead={"detection": 3.0, "plan": 1.5},
        stored={
            "seconds": 50.0,
            "snapshots": 10,
            "bytes": 12_000,
            "forced": 0,
            "header_bytes": 0,
            "dropped": 0,
        },
    ),
    checkpoint=CheckpointRecord(6, 90.0, 12_000, 2.0),
)
OUTPUT_S = 400 / 4 / BATCH_S
"""Four batches are kept."""
MEMORY, LOGGED = ("uncoordinated", "memory"), ("uncoordinated", "checkpointed")
INDUCED, EVENTUAL = ("communication-induced", "checkpointed"), ("eventual", "checkpointed")


def of(found: CheckpointOutlook, protocol: str, log: str) -> ProtocolOutlook:
    return next(p for p in found.protocols if (p.protocol, p.log) == (protocol, log))


def costs(found: ProtocolOutlook, now: bool = False) -> dict[str, tuple[float | None, str, str] | None]:
    chosen = found.costs_now if now else found.costs
    assert chosen is not None
    told = ((f.name, getattr(chosen, f.name)) for f in fields(chosen))
    return {n: None if x is None else (x.value, x.source.value, x.bound) for n, x in told}


def loss(found: ProtocolOutlook, node: str, now: bool = False) -> NodeLoss:
    return next(x for x in (found.losses_now if now else found.losses) if x.node == f"{node}#1")


def figures(value: Any) -> Iterator[Figure]:
    if isinstance(value, Figure):
        yield value
    elif is_dataclass(value):
        yield from (f for field in fields(value) for f in figures(getattr(value, field.name)))
    elif isinstance(value, tuple):
        yield from (f for item in value for f in figures(item))


def on(protocol: str, log: str) -> StreamTopology:
    return override(RESOURCE, {"checkpoint.protocol": protocol, "checkpoint.log": log})


def page(found: CheckpointOutlook, wide: bool = False) -> str:
    console = Console(width=200, record=True, color_system=None, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(checkpoint_page(found, wide))
    return " ".join(console.export_text().split())


# -- while nothing fails -----------------------------------------------------------------------------------------------


def test_the_current_protocol_is_measured() -> None:
    found = of(checkpoint_outlook(RESOURCE, SEEN), "coordinated", "none")
    assert found.current and found.refused == ()
    assert costs(found, now=True) == {
        "stored": (240.0, "measured", ""),
        "headers": (0.0, "derived", ""),
        "kept": (400, "measured", ""),
        "round_s": (2.0, "measured", ""),
        "total_s": (4 * BATCH_S, "measured", ""),
    }


def test_all_follow_by_named_formulas() -> None:
    """Two operators in a row; 12,000 bytes of states each 10 s, more or less 20 %; five partitions on three nodes, of whose
    messages two go from one to another."""
    found = checkpoint_outlook(RESOURCE, SEEN)
    approx = pytest.approx
    assert costs(of(found, "coordinated", "none")) == {
        "stored": (approx(1200.0), "derived", ""),
        "headers": (0.0, "derived", ""),
        "kept": (approx(OUTPUT_S * 12.0), "derived", "at most"),
        "round_s": (2.0, "measured", ""),
        "total_s": (approx(12.0), "derived", "about"),
    }
    assert costs(of(found, *MEMORY)) == {
        "stored": (approx(1200.0), "derived", ""),
        "headers": (0.0, "derived", ""),
        "kept": (approx(OUTPUT_S * 24.0), "derived", "about"),
        "round_s": None,
        "total_s": (approx(24.0), "derived", "about"),
    }
    logged = costs(of(found, *LOGGED))
    assert logged["stored"] == (approx(1200.0 + 1.2 * OUTPUT_S), "derived", "at most")
    assert logged["kept"] == (approx(OUTPUT_S * 12.0), "derived", "about")
    assert logged["total_s"] == (approx(12.0), "derived", "about")
    induced = costs(of(found, *INDUCED))
    assert induced["headers"] == (approx(2 * size_of(5) / BATCH_S), "derived", "")
    assert induced["stored"] == (approx(1200.0 + 1.2 * OUTPUT_S + 5 * size_of(5) / 10), "derived", "about")
    assert {n for n, x in costs(of(found, *EVENTUAL)).items() if x is not None and x[1] == "unknown"} == {
        "stored",
        "kept",
        "total_s",
    }


def test_what_is_measured_of_the_current_protocol_is_derived_or_unknown_of_another() -> None:
    told = {**SEEN.progress.stored, "header_bytes": 5_000} if SEEN.progress else {}
    seen = replace(SEEN, progress=replace(PROGRESS, kept_since=6, stored=told))
    found = checkpoint_outlook(on(*INDUCED), seen)
    assert costs(of(found, *INDUCED), now=True)["headers"] == (100.0, "measured", "")
    assert of(found, *LOGGED).costs_now is None
    back = costs(of(found, "coordinated", "none"))
    assert back["stored"] == (pytest.approx(1200.0), "derived", "at most"), "states hold output now"
    assert back["round_s"] == (None, "unknown", "") and back["kept"] == (None, "unknown", "")
    whole = costs(of(checkpoint_outlook(on(*EVENTUAL), seen), *MEMORY))
    assert whole["stored"] == (None, "unknown", "")


@pytest.mark.parametrize(
    ("changes", "figure", "why"),
    [
        ({"kept_since": 9}, "kept", "too few batches of output are kept at this moment"),
        ({"kept_since": None}, "kept", "output is kept now only until its readers have it"),
    ],
)
def test_what_is_not_known_is_not_guessed(changes: dict[str, Any], figure: str, why: str) -> None:
    assert SEEN.progress is not None
    found = of(
        checkpoint_outlook(RESOURCE, replace(SEEN, progress=replace(SEEN.progress, **changes))), *LOGGED
    )
    assert found.costs is not None
    told = getattr(found.costs, figure)
    assert told.value is None and why in told.basis
    assert found.costs.stored.value is None, "it has output in it"


def test_a_driver_that_says_nothing_of_what_it_stores_makes_nothing_up() -> None:
    seen = replace(SEEN, stats={}, progress=PROGRESS, checkpoint=None)
    found = checkpoint_outlook(RESOURCE, seen)
    now = of(found, "coordinated", "none")
    assert {n for n, x in costs(now, now=True).items() if x is not None and x[0] is None} == {
        "stored",
        "round_s",
    }
    assert now.costs_now is not None and "has not said" in now.costs_now.stored.basis
    lost = loss(now, "n1", now=True)
    assert [f.source for f in (lost.rows, lost.read, lost.seconds)] == [Source.UNKNOWN] * 3
    assert costs(of(found, *MEMORY))["stored"] == (None, "unknown", "")


def test_before_a_checkpoint_is_complete_nothing_says_how_large_states_are() -> None:
    """The driver says 0 of those that are not stored yet; what a loss would read now is nothing."""
    assert SEEN.progress is not None
    stats = {p: replace(s, state_bytes=0) for p, s in SEEN.stats.items()}
    seen = replace(SEEN, stats=stats, progress=replace(SEEN.progress, checkpoint=0), checkpoint=None)
    for told in checkpoint_outlook(RESOURCE, seen).protocols:
        assert told.costs is not None and told.costs.stored.value is None, told.protocol
        assert all(x.read.value is None and x.seconds.value is None for x in told.losses)
    now = of(checkpoint_outlook(RESOURCE, seen), "coordinated", "none")
    assert loss(now, "n1", now=True).read.value == 0


@pytest.mark.parametrize("availability", ["active-standby", "upstream-backup"])
def test_output_that_is_kept_twice_or_longer_is_no_measure_of_how_much_there_is(availability: str) -> None:
    resource = replace(
        RESOURCE,
        operators=tuple(
            replace(o, availability=availability) if o.name == "count" else o for o in RESOURCE.operators
        ),
    )
    found = Known(resource, expand(resource), SEEN).output_s
    assert (found.value, found.bound) == (OUTPUT_S, "at most")
    assert f"{availability} keep more" in found.basis
    assert Known(RESOURCE, expand(RESOURCE), SEEN).output_s.bound == ""


def test_a_line_of_another_protocol_is_no_round() -> None:
    seen = replace(SEEN, checkpoint=CheckpointRecord(6, 90.0, 12_000, 0.0))
    now = of(checkpoint_outlook(RESOURCE, seen), "coordinated", "none")
    assert costs(now, now=True)["round_s"] == (None, "unknown", "")
    assert costs(now)["total_s"] == (pytest.approx(10.0), "derived", "about")
    assert costs(now)["kept"] == (pytest.approx(OUTPUT_S * 10.0), "derived", "about")


def test_what_a_slow_reader_has_not_stored_is_stored_each_time() -> None:
    """`clean` stores itself each 10 s, and who reads it each 100 s: up to 120 s of its output are in each of its files."""
    resource = override(RESOURCE, {"operators[count].checkpoint": {"interval": "100s"}})
    state_s = sum(s.state_bytes / (100 if p.startswith("count") else 10) for p, s in SEEN.stats.items())
    stored = costs(of(checkpoint_outlook(resource, SEEN), *LOGGED))["stored"]
    assert stored == (pytest.approx(state_s + 12 * OUTPUT_S), "derived", "at most")


def test_what_validate_warns_of_is_said() -> None:
    found = checkpoint_outlook(RESOURCE, SEEN)
    assert {p.protocol for p in found.protocols if p.warnings} == {"communication-induced"}


def test_what_is_unknown_has_no_value_and_all_else_has_one() -> None:
    for told in figures(checkpoint_outlook(RESOURCE, SEEN)):
        assert told.basis and (told.value is None) is (told.source is Source.UNKNOWN)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "protocol"),
    [
        ({"checkpoint.state": "paged"}, INDUCED),
        ({"checkpoint.state": "paged"}, EVENTUAL),
        ({"recovery.scope": "ancestors"}, MEMORY),
        ({"operators[clean].deterministic": False}, EVENTUAL),
        ({"batch.order": "arrival"}, MEMORY),
    ],
)
def test_what_validate_refuses_is_refused_with_its_reason(
    changes: dict[str, object], protocol: tuple[str, str]
) -> None:
    resource = override(RESOURCE, changes)
    found = of(checkpoint_outlook(resource, SEEN), *protocol)
    with pytest.raises(SpecError) as said:
        check(override(resource, {"checkpoint.protocol": protocol[0], "checkpoint.log": protocol[1]}))
    assert found.refused == tuple(str(error) for error in said.value.all)
    assert (found.costs, found.losses) == (None, ())
    assert all(why in page(checkpoint_outlook(resource, SEEN)) for why in found.refused)


def test_what_only_the_driver_knows_is_refused_by_what_it_says() -> None:
    """Classes of users are not imported here."""
    assert SEEN.progress is not None
    found = checkpoint_outlook(RESOURCE, replace(SEEN, progress=replace(SEEN.progress, deterministic=False)))
    assert "not deterministic, as the driver says" in of(found, *EVENTUAL).refused[0]
    assert loss(of(found, "coordinated", "none"), "n3").back == ("tweets.0", "clean.0", "clean.1", "count.0")
    assert "a replay may differ" in loss(of(found, *MEMORY), "n3").why


def test_in_the_order_of_arrival_a_loss_takes_everything_back_by_own_clocks_too() -> None:
    assert SEEN.progress is not None
    resource = override(RESOURCE, {"batch.order": "arrival"})
    seen = replace(SEEN, progress=replace(SEEN.progress, deterministic=False))
    found = of(checkpoint_outlook(resource, seen), *LOGGED)
    assert found.refused == ()
    assert (
        loss(found, "n3").back
        == loss(of(checkpoint_outlook(resource, seen), "coordinated", "none"), "n3").back
    )
    assert "a replay may differ" in loss(found, "n3").why


# -- losses ------------------------------------------------------------------------------------------------------------


def test_a_loss_now_is_what_the_partitions_there_have_to_do() -> None:
    """n1 has tweets.0, clean.0 and count.0: 350 rows in 3.5 s, 5,000 bytes in 2.5 s."""
    found = loss(of(checkpoint_outlook(RESOURCE, SEEN), "coordinated", "none"), "n1", now=True)
    assert (found.lost, found.back) == (("tweets.0", "clean.0", "count.0"), ())
    assert (found.rows.value, found.read.value) == (350, 5000)
    assert found.stream_s.value == 4 * BATCH_S
    assert found.seconds.value == pytest.approx(4.5 + INSTALL_S + 6.0)
    assert found.assumed == ("install",)


def test_who_goes_back_too_is_counted_beside_it() -> None:
    resource = override(RESOURCE, {"recovery.scope": "ancestors"})
    found = loss(of(checkpoint_outlook(resource, SEEN), "coordinated", "none"), "n3", now=True)
    assert (found.lost, found.back) == (("count.1",), ("clean.1",))
    assert found.rows.value == 300 and found.read.value == 7000
    assert found.seconds.value == pytest.approx(4.5 + INSTALL_S + 3.0 + 3.5)


def test_with_another_protocol_rows_come_at_their_rate_for_as_long_as_it_goes_back() -> None:
    """With `memory` clean.0 goes back by two intervals, as count.0 that reads it is lost with it."""
    found = checkpoint_outlook(RESOURCE, SEEN)
    memory, logged = loss(of(found, *MEMORY), "n1"), loss(of(found, *LOGGED), "n1")
    assert (memory.lost, memory.back) == (("tweets.0", "clean.0", "count.0"), ())
    assert memory.rows.value == ROWS_S * (12 + 24 + 12) and logged.rows.value == ROWS_S * 36
    assert (memory.stream_s.value, logged.stream_s.value) == (pytest.approx(24.0), pytest.approx(12.0))
    assert (memory.read.bound, logged.read.bound) == ("", "at least"), "output is stored with it"
    assert memory.seconds.value == pytest.approx(4.5 + INSTALL_S + 2.5 + 480 / 100)
    eventual = loss(of(found, *EVENTUAL), "n1")
    assert {f.source for f in (eventual.rows, eventual.read, eventual.seconds)} == {Source.UNKNOWN}


def test_whether_output_would_be_kept_by_rounds_is_not_known_where_there_are_none() -> None:
    found = checkpoint_outlook(on(*MEMORY), SEEN)
    assert loss(of(found, *MEMORY), "n1", now=True).back == ()
    rounds = loss(of(found, "coordinated", "none"), "n1")
    assert rounds.back is None and "is not known" in rounds.why
    assert rounds.rows.value == ROWS_S * 30, "of the lost ones alone"


def test_output_that_was_dropped_leaves_it_to_the_driver() -> None:
    assert SEEN.progress is not None
    told = {**SEEN.progress.stored, "dropped": 2}
    found = checkpoint_outlook(on(*MEMORY), replace(SEEN, progress=replace(SEEN.progress, stored=told)))
    now = loss(of(found, *MEMORY), "n1", now=True)
    assert now.back is None and "2 partitions have dropped output" in now.why


def test_standbys_go_on_and_repeat_nothing() -> None:
    resource = override(RESOURCE, {"operators[count].availability": "active-standby"})
    assert SEEN.progress is not None
    seen = replace(
        SEEN,
        desired=replace(DESIRED, standbys={"count.1": "n2#1"}),
        progress=replace(SEEN.progress, standbys={"count.1": 10}),
    )
    found = loss(of(checkpoint_outlook(resource, seen), "coordinated", "none"), "n3", now=True)
    assert (found.lost, found.promoted, found.rows.value) == ((), ("count.1",), 0)
    assert "standbys go on" in found.why


def test_a_lost_partition_whose_standby_cannot_go_on_is_restored() -> None:
    """With operators whose replay may differ standbys are not promoted: everything is restored, it too."""
    resource = override(RESOURCE, {"operators[clean].availability": "active-standby"})
    assert SEEN.progress is not None
    seen = replace(
        SEEN,
        desired=replace(DESIRED, standbys={"clean.1": "n3#1"}),
        progress=replace(SEEN.progress, standbys={"clean.1": 10}, deterministic=False),
    )
    found = loss(of(checkpoint_outlook(resource, seen), "coordinated", "none"), "n2", now=True)
    without = loss(
        of(checkpoint_outlook(RESOURCE, replace(seen, desired=DESIRED)), "coordinated", "none"), "n2", True
    )
    assert "clean.1" in found.lost and found.rows.value == 650
    assert (found.rows, found.seconds) == (without.rows, without.seconds)


def test_a_passive_standby_repeats_what_its_copy_does_not_have() -> None:
    resource = override(RESOURCE, {"operators[count].availability": "passive-standby"})
    assert SEEN.progress is not None
    seen = replace(
        SEEN,
        desired=replace(DESIRED, standbys={"count.1": "n2#1"}),
        progress=replace(SEEN.progress, standbys={"count.1": 7}),
    )
    for now in (True, False):
        found = loss(of(checkpoint_outlook(resource, seen), "coordinated", "none"), "n3", now)
        assert found.promoted == ("count.1",)
        assert [f.source for f in (found.rows, found.stream_s, found.seconds)] == [Source.UNKNOWN] * 3


def test_what_begins_anew_repeats_no_more_than_what_is_restored() -> None:
    resource = override(RESOURCE, {"operators[count].availability": "amnesia"})
    for now in (True, False):
        found = loss(of(checkpoint_outlook(resource, SEEN), "coordinated", "none"), "n3", now)
        assert {f.bound for f in (found.rows, found.read, found.stream_s)} == {"at most"}
        assert "`availability: amnesia` begins anew" in found.why


def test_what_is_fed_again_by_its_upstreams_reads_no_state() -> None:
    assert SEEN.progress is not None
    seen = replace(SEEN, progress=replace(SEEN.progress, backed=frozenset({"count.1"})))
    for now in (True, False):
        found = loss(of(checkpoint_outlook(RESOURCE, seen), "coordinated", "none"), "n3", now)
        figures = (found.rows, found.read, found.stream_s, found.seconds)
        assert [f.source for f in figures] == [Source.UNKNOWN] * 4


def test_where_all_is_on_one_node_that_is_why() -> None:
    seen = replace(SEEN, desired=replace(DESIRED, assignment=dict.fromkeys(DESIRED.assignment, "n1#1")))
    for told in checkpoint_outlook(RESOURCE, seen).protocols:
        assert {x.why for x in (*told.losses, *told.losses_now)} == {"all that is at work is there"}


@pytest.mark.parametrize("why", ["paused", "ended"])
def test_while_no_rows_come_their_rate_says_nothing_of_other_times(why: str) -> None:
    assert SEEN.progress is not None
    stats = {p: replace(s, input_rows_s=0.0) for p, s in SEEN.stats.items()}
    seen = replace(SEEN, stats=stats)
    if why == "paused":
        seen = replace(seen, desired=replace(DESIRED, paused=True))
    else:
        seen = replace(seen, progress=replace(SEEN.progress, ended=True))
    found = checkpoint_outlook(RESOURCE, seen)
    now = of(found, "coordinated", "none")
    assert loss(now, "n1", now=True).rows.value == 350
    for told in (loss(now, "n1"), loss(of(found, *MEMORY), "n1")):
        assert told.rows.value is None and why in told.rows.basis and told.seconds.value is None


def test_a_driver_that_is_silent_or_waits_says_nothing_of_now() -> None:
    assert SEEN.progress is not None
    seen = replace(SEEN, time=1_000.0, progress=replace(SEEN.progress, time=995.0))
    assert checkpoint_outlook(RESOURCE, seen).not_calm == ""
    assert "has said nothing for 105 s" in checkpoint_outlook(RESOURCE, replace(seen, time=1_100.0)).not_calm
    assert "waits: the store" in checkpoint_outlook(RESOURCE, replace(seen, waits="the store")).not_calm


def test_while_not_all_is_at_work_it_says_so_and_nothing_else() -> None:
    found = checkpoint_outlook(oncall_resource(), after_the_burst())
    assert found.not_calm.endswith("is open: what is measured now is a recovery")
    assert [p.costs for p in found.protocols] == [None] * 5
    assert "no figures now: incident" in page(found)
    silent = checkpoint_outlook(RESOURCE, Observation(1.0))
    assert silent.not_calm == "ZooKeeper does not answer"
    gone = {n: x for n, x in SEEN.nodes.items() if n != "n3#1"}
    assert "n3#1 is gone" in checkpoint_outlook(RESOURCE, replace(SEEN, nodes=gone)).not_calm


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_the_page_marks_each_figure_and_names_what_it_rests_on() -> None:
    text = page(checkpoint_outlook(RESOURCE, SEEN))
    for words in (
        "coordinated now 240 B/s m 0 B/s d 400 B m 2.0s m",
        "uncoordinated/memory 1.2 KiB/s d",
        "coordinated n1#1 3 0 2.0s m",
        "<350 m 4.9 KiB m ~12s d *",
        "10 that take no longer are left out",
        "headers of communication-induced: derived: ",
    ):
        assert words in text, (words, text)
    assert "are left out" not in page(checkpoint_outlook(RESOURCE, SEEN), wide=True)


def test_who_asks_the_page_knows_as_much_as_who_asks_zookeeper() -> None:
    there = observation(json.dumps(records(SEEN)).encode(), "test")
    assert checkpoint_outlook(RESOURCE, there) == checkpoint_outlook(RESOURCE, SEEN)
