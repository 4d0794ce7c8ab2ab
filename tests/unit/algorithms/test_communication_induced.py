"""Communication-induced checkpoints: no snapshot is useless, judged by trying every choice of snapshots; and what the
protocol does in figures and examples worked by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.communication_induced import Header, Process, size_of
from reprise.algorithms.recovery_line import Edge, Impossible, World, line
from tests.support.examples import examples
from tests.unit.algorithms.test_recovery_line import Point

# -- processes that send when they like --------------------------------------------------------------------------------


@dataclass
class Message:
    sender: int
    receiver: int
    sent: int
    """How many events the sender had seen."""
    header: Header
    received: int = -1
    """The same of the receiver; -1: it is under way."""


@dataclass
class History:
    """Processes, what they have sent to each other and after how many of their events they took snapshots."""

    count: int
    induced: bool
    processes: list[Process] = field(init=False)
    events: list[int] = field(init=False)
    snapshots: list[list[int]] = field(init=False)
    messages: list[Message] = field(default_factory=list)
    forced: int = 0

    def __post_init__(self) -> None:
        self.processes = [Process(i, self.count) for i in range(self.count)]
        self.events, self.snapshots = [0] * self.count, [[0] for _ in range(self.count)]

    def store(self, i: int) -> None:
        if self.snapshots[i][-1] < self.events[i]:
            self.snapshots[i].append(self.events[i])
            self.processes[i].take_checkpoint()

    def send(self, sender: int, receiver: int) -> Message:
        header = self.processes[sender].send([receiver])
        self.events[sender] += 1
        self.messages.append(Message(sender, receiver, self.events[sender], header))
        return self.messages[-1]

    def receive(self, *messages: Message) -> bool:
        """All at once; says whether a snapshot was forced."""
        i = messages[0].receiver
        headers = [m.header for m in messages]
        forced = self.induced and self.processes[i].must_checkpoint(headers)
        if forced:
            assert self.snapshots[i][-1] < self.events[i], "right after a snapshot none is needed"
            self.store(i)
            self.forced += 1
            assert not self.processes[i].must_checkpoint(headers)
        self.processes[i].receive(headers)
        self.events[i] += 1
        for message in messages:
            message.received = self.events[i]
        return forced

    def useless(self) -> list[tuple[int, int]]:
        """Snapshots that are in no choice without orphans; what a process is now counts as one."""
        ends = [[*known, *{self.events[i]} - {known[-1]}] for i, known in enumerate(self.snapshots)]
        useful = {pair for chosen in product(*ends) if self._whole(chosen) for pair in enumerate(chosen)}
        return [(i, at) for i, known in enumerate(ends) for at in known if (i, at) not in useful]

    def _whole(self, chosen: Sequence[int]) -> bool:
        return not any(
            m.received >= 0 and m.received <= chosen[m.receiver] and m.sent > chosen[m.sender]
            for m in self.messages
        )


@st.composite
def histories(draw: st.DrawFn, induced: bool = True) -> History:
    """Messages overtake each other, and several may be received at once."""
    count = draw(st.integers(2, 4))
    history = History(count, induced)
    process = st.integers(0, count - 1)
    for _ in range(draw(st.integers(5, 40))):
        what, i = draw(st.sampled_from(["store", "send", "send", "receive", "receive"])), draw(process)
        if what == "store" and len(history.snapshots[i]) < 5:
            history.store(i)
        elif what == "send":
            history.send(i, draw(process.filter(lambda j, i=i: j != i)))
        elif waiting := [m for m in history.messages if m.receiver == i and m.received < 0]:
            taken = draw(st.lists(st.sampled_from(waiting), min_size=1, max_size=2, unique_by=id))
            history.receive(*taken)
    return history


@examples(300)
@given(histories())
def test_no_snapshot_is_useless_whatever_is_sent_and_overtakes(history: History) -> None:
    if max(map(len, history.snapshots)) < 9:  # else there are too many choices to try
        assert history.useless() == []


@pytest.mark.parametrize("induced", [False, True])
def test_what_comes_back_by_way_of_a_snapshot_forces_one_by_the_second_condition(induced: bool) -> None:
    """1 sends m, 0 takes it in, stores itself and sends n, and 1 takes n in: m is an orphan of that snapshot with one of 1
    before m, and n with one of 1 after n."""
    history = History(2, induced)
    history.receive(history.send(1, 0))
    history.store(0)
    assert history.receive(history.send(0, 1)) is induced
    history.store(1)
    assert history.useless() == ([] if induced else [(0, 1)])


@pytest.mark.parametrize("induced", [False, True])
def test_what_may_meet_an_older_interval_elsewhere_forces_one_by_the_first_condition(induced: bool) -> None:
    """2 sends q, 0 takes it in, stores itself and sends n, and 1, which has sent m to 2, takes n in.  What 2 sent was sent
    before m came there, so nobody can have told 1 of it: but that the clock of 0 is greater than that of 2."""
    history = History(3, induced)
    m = history.send(1, 2)
    history.receive(history.send(2, 0))
    history.store(0)
    n = history.send(0, 1)
    state = history.processes[1]
    assert state._first_condition(n.header) and not state._second_condition(n.header)
    assert history.receive(n) is induced
    history.receive(m)
    assert history.useless() == ([] if induced else [(0, 1)])


@pytest.mark.parametrize("story", ["greater nowhere", "nothing sent", "equal clocks"])
def test_who_has_no_reason_is_forced_to_nothing(story: str) -> None:
    history = History(3, induced=True)
    if story != "nothing sent":
        history.send(1, 2)
    if story != "equal clocks":
        history.store(0)
        history.events[0] += 1
        history.store(0)
    header = history.processes[0].send([1])
    if story == "greater nowhere":
        header = Header(header.lc, header.ckpt, header.taken, np.zeros(3, np.bool_))
    assert not history.processes[1].must_checkpoint([header])


# -- the protocol, entry by entry --------------------------------------------------------------------------------------


class EntryByEntry:
    """HMNR as it is printed, with lists."""

    def __init__(self, index: int, processes: int) -> None:
        self.i, self.all = index, range(processes)
        self.lc, self.ckpt = 0, [0] * processes
        self.take()

    def take(self) -> None:
        self.sent_to = [False for _ in self.all]
        self.taken = [k != self.i for k in self.all]
        self.greater = [k != self.i for k in self.all]
        self.lc += 1
        self.ckpt[self.i] += 1

    def forced(self, m: Header) -> bool:
        first = any(self.sent_to[k] and m.greater[k] for k in self.all) and m.lc > self.lc
        return bool(first or (m.ckpt[self.i] == self.ckpt[self.i] and m.taken[self.i]))

    def receive(self, m: Header) -> None:
        if m.lc > self.lc:
            self.lc = m.lc
            self.greater = [k != self.i and bool(m.greater[k]) for k in self.all]
        elif m.lc == self.lc:
            self.greater = [self.greater[k] and bool(m.greater[k]) for k in self.all]
        for k in self.all:
            if k != self.i and m.ckpt[k] > self.ckpt[k]:
                self.ckpt[k], self.taken[k] = int(m.ckpt[k]), bool(m.taken[k])
            elif k != self.i and m.ckpt[k] == self.ckpt[k]:
                self.taken[k] = self.taken[k] or bool(m.taken[k])


bits = st.lists(st.booleans(), min_size=3, max_size=3)
headers = st.builds(
    lambda lc, ckpt, taken, greater: Header(lc, np.array(ckpt), np.array(taken), np.array(greater)),
    st.integers(0, 4), st.lists(st.integers(0, 3), min_size=3, max_size=3), bits, bits,
)  # fmt: skip


@examples(200)
@given(st.lists(st.one_of(headers, st.integers(0, 2), st.none()), max_size=12))
def test_each_entry_becomes_what_the_protocol_says(events: list[Header | int | None]) -> None:
    """A header is received, a number is a process that something is sent to, None is a snapshot."""
    found, expected = Process(1, 3), EntryByEntry(1, 3)
    for event in events:
        if event is None:
            found.take_checkpoint()
            expected.take()
        elif isinstance(event, int):
            said = found.send([event])
            expected.sent_to[event] = True
            assert (said.lc, said.ckpt.tolist()) == (expected.lc, expected.ckpt)
        else:
            assert found.must_checkpoint([event]) == expected.forced(event)
            found.receive([event])
            expected.receive(event)
        assert found.lc == expected.lc
        for name in ("ckpt", "sent_to", "taken", "greater"):
            assert getattr(found, name).tolist() == getattr(expected, name), name


# -- batches: every process receives all of a batch at once, sends, and may store itself -------------------------------

Local = Callable[[int, int], bool]
"""Whether process i stores itself by its own clock after batch b."""


@dataclass
class Run:
    snapshots: list[list[int]]
    """Batches after which each stored itself, and the last one, which it stands at."""
    forced: int = 0


def batches(count: int, edges: Mapping[tuple[int, int], int], last: int, local: Local, induced: bool) -> Run:
    """`edges`: (u, p) -> delay.  Processes are in topological order."""
    processes = [Process(i, count) for i in range(count)]
    targets = [[p for u, p in edges if u == i] for i in range(count)]
    sent: dict[tuple[int, int], Header] = {}
    run = Run([[0] for _ in range(count)])
    for batch in range(1, last + 1):
        for i, process in enumerate(processes):
            messages = [sent[u, batch - d] for (u, p), d in edges.items() if p == i and batch > d]
            if induced and process.must_checkpoint(messages):
                assert run.snapshots[i][-1] < batch - 1, "right after a snapshot none is needed"
                run.snapshots[i].append(batch - 1)
                process.take_checkpoint()
                run.forced += 1
            process.receive(messages)
            sent[i, batch] = process.send(targets[i])
            if local(i, batch):
                run.snapshots[i].append(batch)
                process.take_checkpoint()
    for known in run.snapshots:
        known.extend({last} - {known[-1]})
    return run


def line_of(edges: Mapping[tuple[int, int], int], snapshots: Sequence[Sequence[int]]) -> list[int] | None:
    """The greatest choice without orphans where all that was sent is logged; None: there is none."""
    logged = {
        str(i): tuple(Point(k, {str(p): 1 for u, p in edges if u == i}) for k in known)
        for i, known in enumerate(snapshots)
    }
    known = [Edge(str(u), str(p), d) for (u, p), d in edges.items()]
    found = line(World(known, frozenset(), logged, {}, {}, 0, frozenset()), logged)
    if isinstance(found, Impossible):
        return None
    return [found[str(i)].position for i in range(len(snapshots))]


def useless(edges: Mapping[tuple[int, int], int], snapshots: list[list[int]]) -> list[tuple[int, int]]:
    """Snapshots that no choice without orphans has."""
    return [
        (i, k)
        for i, known in enumerate(snapshots)
        for k in known
        if line_of(edges, [*snapshots[:i], [k], *snapshots[i + 1 :]]) is None
    ]


def by_brute_force(edges: Mapping[tuple[int, int], int], snapshots: list[list[int]]) -> list[tuple[int, int]]:
    useful = {
        pair
        for chosen in product(*snapshots)
        if all(chosen[p] - d <= chosen[u] for (u, p), d in edges.items())
        for pair in enumerate(chosen)
    }
    return [(i, k) for i, known in enumerate(snapshots) for k in known if (i, k) not in useful]


@dataclass(frozen=True)
class Graph:
    count: int
    edges: Mapping[tuple[int, int], int]
    every: Sequence[int]
    phase: Sequence[int]

    def local(self, i: int, batch: int) -> bool:
        return (batch + self.phase[i]) % self.every[i] == 0


@st.composite
def graphs(draw: st.DrawFn, most: int = 6, cyclic: bool | None = None) -> Graph:
    """Connected graphs, with a feedback edge or without, and clocks of any interval and phase."""
    count = draw(st.integers(2, most))
    edges: dict[tuple[int, int], int] = {}
    for i in range(1, count):
        above = st.sets(st.integers(0, i - 1), min_size=1, max_size=2)
        edges |= dict.fromkeys(((u, i) for u in draw(above)), 0)
    if draw(st.booleans()) if cyclic is None else cyclic:
        first = draw(st.integers(0, count - 2))
        edges[draw(st.integers(first + 1, count - 1)), first] = 1
    many = {"min_size": count, "max_size": count}
    every = draw(st.lists(st.integers(4, 9), **many))  # type: ignore[arg-type]
    return Graph(count, edges, every, draw(st.lists(st.integers(0, 8), **many)))  # type: ignore[arg-type]


@examples(120)
@given(graphs())
def test_no_snapshot_of_batches_is_useless_on_any_graph(graph: Graph) -> None:
    run = batches(graph.count, graph.edges, 40, graph.local, induced=True)
    assert useless(graph.edges, run.snapshots) == []


@examples(40)
@given(graphs(most=4), st.booleans())
def test_useless_is_what_no_choice_of_snapshots_has(graph: Graph, induced: bool) -> None:
    """The judge itself, against all choices that there are."""
    run = batches(graph.count, graph.edges, 16, graph.local, induced)
    assert useless(graph.edges, run.snapshots) == by_brute_force(graph.edges, run.snapshots)


@examples(60)
@given(graphs(cyclic=False))
def test_without_a_cycle_no_snapshot_is_useless_and_none_had_to_be_forced(graph: Graph) -> None:
    run = batches(graph.count, graph.edges, 40, graph.local, induced=False)
    assert useless(graph.edges, run.snapshots) == []


RING = {(0, 1): 0, (1, 0): 1}


def out_of_phase(i: int, batch: int) -> bool:
    return batch % 10 == (0 if i == 0 else 5)


def stored(run: Run, last: int) -> list[list[int]]:
    """Without where everybody stands."""
    return [[k for k in known if k < last] for known in run.snapshots]


def test_a_ring_out_of_phase_falls_to_its_beginning_and_forced_snapshots_hold_it() -> None:
    """One stores itself after batches 10, 20, 30 and the other one after 5, 15, 25."""
    alone = batches(2, RING, 30, out_of_phase, induced=False)
    assert line_of(RING, stored(alone, 30)) == [0, 0]
    assert useless(RING, alone.snapshots) == [(0, 10), (0, 20), (1, 5), (1, 15), (1, 25)]
    induced = batches(2, RING, 30, out_of_phase, induced=True)
    assert useless(RING, induced.snapshots) == []
    assert line_of(RING, stored(induced, 30)) == [26, 25]


def test_forced_snapshots_alone_lead_to_no_others_for_ever() -> None:
    """While nobody's clock asks for any, as when the store is away, no more than a few are taken."""

    def once(i: int, batch: int) -> bool:
        return out_of_phase(i, batch) and batch <= 10

    until = {last: batches(2, RING, last, once, induced=True).forced for last in (20, 200)}
    assert until[20] == until[200] > 0


@examples(40)
@given(graphs())
def test_forced_snapshots_end_when_no_clock_asks(graph: Graph) -> None:
    def early(i: int, batch: int) -> bool:
        return batch <= 12 and graph.local(i, batch)

    short, long = (batches(graph.count, graph.edges, last, early, induced=True).forced for last in (40, 80))
    assert short == long <= 12 * graph.count


# -- CheckMate, figure 5 -----------------------------------------------------------------------------------------------


def test_figure_5_falls_without_forced_snapshots_and_stands_with_them() -> None:
    """Three operators in a cycle with the checkpoints of the figure, as batches after which they were taken."""
    after = [[1, 3, 6], [1, 3, 4], [1, 4]]
    edges = {(0, 1): 0, (1, 2): 0, (2, 0): 1}
    runs = [batches(3, edges, 7, lambda i, b: b in after[i], induced) for induced in (False, True)]
    alone, induced = ([[k for k in known if 0 < k < 7] for known in run.snapshots] for run in runs)
    assert alone == after
    assert line_of(edges, alone) == [1, 1, 1], "C<1,1>, C<2,1>, C<3,1>"
    assert all(set(own) <= set(more) for own, more in zip(after, induced, strict=True))
    found = line_of(edges, induced)
    assert found is not None and min(found) > 1
    assert useless(edges, runs[1].snapshots) == []


# -- what a message carries --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 7, 8, 9, 150])
def test_a_header_is_read_as_it_was_written(processes: int) -> None:
    dice = np.random.default_rng(processes)
    bits = dice.random((2, processes)) < 0.5
    header = Header(2**40, dice.integers(0, 2**40, processes), bits[0], bits[1])
    data = header.encode()
    assert len(data) == size_of(processes)
    read = Header.decode(data, processes)
    assert read.lc == header.lc
    for name in ("ckpt", "taken", "greater"):
        assert (getattr(read, name) == getattr(header, name)).all()
    with pytest.raises(ValueError, match=f"the header of {processes + 8} processes"):
        Header.decode(data, processes + 8)


def test_a_process_goes_on_from_what_was_stored_with_its_snapshot() -> None:
    one, other = Process(0, 3), Process(1, 3)
    one.receive([other.send([0])])
    one.send([1, 2])
    one.take_checkpoint()
    again = Process.restored(0, Header.decode(one.knowledge().encode(), 3))
    for name in Process.__slots__:
        assert np.array_equal(getattr(again, name), getattr(one, name)), name
    before = one.knowledge()
    again.receive([other.send([0])])
    again.take_checkpoint()
    assert one.knowledge().encode() == before.encode(), "the two share nothing"
