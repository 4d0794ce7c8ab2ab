"""Upstream backup: what is lost is fed again by what it reads, nothing of it is read from the store, and whatever happens
all is shown once and as without a failure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.algorithms.failure import FailureKind
from reprise.algorithms.positions import Origin
from reprise.spark_jobs.contract import Inbox, Input
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.upstream_backup import UpstreamBackup
from reprise.spark_jobs.node.runtime import OperatorRuntime, Output, SourceRuntime
from reprise.spark_jobs.node.wire import decode_table
from reprise.spark_jobs.operators import RunningAggregate
from reprise.spark_jobs.operators.testing import as_bytes
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.topology import load_text, make_operator
from tests.support.engine_worlds import fault_free, goes_back, place, placed, to_its_end
from tests.support.hashtags import SKIPPED
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")

NODES = ("a", "b", "c", "d")
AT = {
    "tweets.0": "a", "tweets.1": "b", "parse.0": "c", "parse.1": "b",
    "window.0": "d", "window.1": "b", "window.2": "a", "best.0": "b", "all.0": "a",
}  # fmt: skip
"""`parse.0` is alone on its node, and so is `window.0`."""
MODE = {f"operators[{name}].availability": "upstream-backup" for name in ("parse", "window", "best", "all")}


class Watch:
    """What each partition gives for each batch, which is compared each time; and what is read of a store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: dict[tuple[str, int], pa.Table | None] = {}
        self.compared = 0
        self.warm = 0
        self.read: list[str] = []
        step, read_state = OperatorRuntime._step, CheckpointStore.read_state

        def stepped(runtime: OperatorRuntime, batch: int) -> Output:
            output = step(runtime, batch)
            if batch <= runtime.replays_to:
                self.warm += 1
                return output
            key = runtime.partition.id, batch
            self.compared += key in self.given
            was = self.given.setdefault(key, output.table)
            assert as_bytes(was) == as_bytes(output.table), f"{key} gives something else"
            return output

        def read(store: CheckpointStore, file: StateFile) -> Any:
            self.read.append(Path(file.path).name.partition(".host")[0])
            return read_state(store, file)

        monkeypatch.setattr(OperatorRuntime, "_step", stepped)
        monkeypatch.setattr(CheckpointStore, "read_state", read)

    def begin(self) -> None:
        """Another world has another history."""
        self.given.clear()
        self.compared = self.warm = 0
        self.read.clear()


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def world_of(folder: Path, changes: Mapping[str, Any] = MODE, text: str = SKIPPED) -> World:
    return placed(load_text(text, changes=dict(changes)), folder, AT)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(world_of(tmp_path_factory.mktemp("fault-free"), {}))


def has_no_idea(patch: pytest.MonkeyPatch, after: int = -1) -> None:
    """The code of windows cannot say what it needs behind this batch."""

    def raises(self: RunningAggregate, batch: int) -> int:
        if batch > after:
            raise RuntimeError("no idea")
        return 1

    patch.setattr(RunningAggregate, "oldest_needed", raises)


def restore(world: World, *nodes: str, without: Collection[str] = ()) -> None:
    """What is not at work goes to these nodes, and nobody goes back."""
    engine = world.engine
    at = place(world, nodes, without)
    world.want(engine.desired.generation, engine.punctuations.newest, at, retain=True)


back = goes_back


def finish(world: World, expected: dict[str, bytes]) -> None:
    to_its_end(world)
    assert world.output() == expected


def fed(world: World) -> set[str]:
    """Partitions that are being installed without a stored state, fed by what they read."""
    return set(world.engine.upstream._begun)


def lose(world: World, *nodes: str) -> set[str]:
    """Nodes go, and the driver has seen it; what was on them."""
    lost = {p for p, n in world.engine.desired.assignment.items() if n in nodes}
    world.nodes.lose(*nodes)
    tick(world, 2)
    assert lost <= world.engine.failed.keys()
    return lost


@pytest.mark.wide
def test_it_is_fed_by_the_plan_though_something_else_was_wanted_since_it_was_lost(
    world: World, expected: dict[str, bytes], watch: Watch
) -> None:
    """A coordinator opens an incident first, which changes the desired state, and not where anything is."""
    newest = world.engine.punctuations.newest
    assert lose(world, "d") == {"window.0"}
    for _ in range(2):
        world.want(1, newest, world.engine.desired.assignment)
        assert "window.0" in world.engine.failed and fed(world) == set()
        tick(world)
    restore(world, "a", "b")
    assert fed(world) == {"window.0"}
    finish(world, expected)
    assert "window.0" not in watch.read
    assert world.engine.desired.generation == 1


@pytest.mark.wide
def test_a_window_is_begun_anew_at_its_first_batch_though_a_checkpoint_is_within_it(
    tmp_path: Path, watch: Watch
) -> None:
    """What a checkpoint covers is kept all the same, as it is the cause of what the window gives next."""
    size = {"operators[window].with.size": "1900ms"}  # batches 1..19, 20..38, 39..57
    reference = fault_free(world_of(tmp_path / "reference", size))
    watch.begin()
    world = world_of(tmp_path / "lost", MODE | size)
    world.run(lambda e: e.punctuations.newest >= 20 and past(24)(e))
    lose(world, "d")
    newest = world.engine.punctuations.newest
    restore(world, "a")
    install = world.engine.upstream.install("window.0")
    assert install is not None
    assert (install.position, install.file) == (19, None)
    assert newest > 19
    assert install.replays_to is not None
    assert 24 <= install.replays_to <= 37
    finish(world, reference)
    assert watch.warm == install.replays_to - 19
    assert watch.read == []
    assert world.engine.desired.generation == 1


def could_be_fed(engine: Engine) -> Collection[str]:
    return engine.upstream.ready(engine)


def rebuilds(world: World, watch: Watch, of: Callable[[Engine], Collection[str]] = could_be_fed) -> set[str]:
    """Those that can be rebuilt from the entries that remain now: what they give behind `low` is what was given.  `of`: who
    could be fed again, as far as the driver knows."""
    engine, found = world.engine, set[str]()
    at, hosts = engine.desired.assignment, world.nodes.hosts
    runtimes = {p: hosts[n].runtimes[p] for p, n in at.items() if n in hosts and p in hosts[n].runtimes}
    for partition, cause in engine.upstream.causes.items():
        runtime = runtimes.get(partition)
        if runtime is None or partition not in of(engine):
            continue
        operator = make_operator(world.resource.operator(runtime.partition.place.operator))
        state, low = operator.initial(runtime.partition.place), lowest(world, partition)
        for batch in range(cause + 1, runtime.position + 1):
            inputs = []
            for upstream, delay in runtime.needs:  # type: ignore[union-attr]
                sender, made = runtimes[upstream], batch - delay
                if not made:
                    continue
                if isinstance(sender, SourceRuntime):
                    assert sender.forgotten < made, f"{partition}: {upstream} cannot read batch {made}"
                    _, body = sender._again(partition, made)
                else:
                    assert made in sender.buffers[partition].entries, f"{partition}: {upstream} {made}"
                    body = sender.buffers[partition].body(made)
                if (table := decode_table(body)) is not None:
                    inputs.append(Input(upstream.rpartition(".")[0], upstream, table))
            state, out = operator.step(state, Inbox(batch, None, tuple(inputs)))
            if batch > low:
                assert as_bytes(out) == as_bytes(watch.given[partition, batch]), f"{partition}, batch {batch}"
        found.add(partition)
    return found


def lowest(world: World, partition: str) -> int:
    """The last batch of which nobody needs any more what a partition gives."""
    downstream, at = world.topology.partitions[partition].downstream, world.engine.positions
    wanted = [max(0, at[t] - d.feedback) for d in downstream for t in d.targets]
    return min(wanted, default=at[partition])


def test_trimming_one_batch_too_much_is_found(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.begin()
    cause = UpstreamBackup._cause
    monkeypatch.setattr(UpstreamBackup, "_cause", lambda self, p, low: cause(self, p, low) + 1)
    world = world_of(tmp_path, MODE | {"recovery.bufferMemory": "8Ki"})
    with pytest.raises(AssertionError, match="window"):
        while not past(55)(world.engine):
            tick(world)
            rebuilds(world, watch)


@pytest.mark.wide
def test_full_buffers_let_go_of_the_backup_and_the_stream_goes_on(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """What the window needs does not fit: it is said, and a lost partition of it comes from the checkpoint."""
    changes = MODE | {
        "recovery.bufferMemory": "4Ki",
        "recovery.bufferDisk": "4Ki",
        "operators[window].with.size": "4s",
    }
    reference = fault_free(world_of(tmp_path / "reference", {"operators[window].with.size": "4s"}))
    world = world_of(tmp_path / "small", changes)
    world.run(past(35))
    engine = world.engine
    assert "window.0" in engine.upstream.able
    assert "window.0" not in engine.progress.backed
    assert "all.0" in engine.progress.backed
    lose(world, "d")
    restore(world, "a")
    assert "window.0" not in fed(world)
    finish(world, reference)


@pytest.mark.wide
def test_full_buffers_of_an_incident_keep_what_backups_need_before_all_else(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """All is kept while something is failed, until it does not fit: then what was applied goes, down to the causes."""
    world = world_of(tmp_path, MODE | {"recovery.bufferMemory": "8Ki", "recovery.bufferDisk": "40Ki"})
    engine = world.engine
    world.want(1, 0, AT, retain=True)
    backed = []
    while not past(45)(engine):
        tick(world)
        backed.append("window.0" in engine.progress.backed)
    assert engine.progress.kept_since > 0, "nothing was dropped"
    assert all(backed)
    finish(world, expected)


@pytest.mark.wide
def test_a_partition_and_what_it_reads_are_lost_and_both_are_fed_again(
    world: World, expected: dict[str, bytes], watch: Watch
) -> None:
    """Outputs are kept since the checkpoint here, so two in a row are no more than one."""
    lose(world, "c", "d")
    restore(world, "a", "b")
    assert fed(world) == {"parse.0", "window.0"}
    begun = world.engine.upstream._begun
    assert begun["parse.0"].replays_to == begun["window.0"].position
    finish(world, expected)
    assert watch.read == []
    assert world.engine.desired.generation == 1


def test_two_in_a_row_are_more_than_level_1_keeps(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """Senders have forgotten what the lost one that reads them had applied: the checkpoint is the fallback."""
    world = world_of(tmp_path, MODE | {"recovery.bufferMemory": "8Ki"})
    world.run(lambda e: e.punctuations.newest == 30 and "window.0" in e.progress.backed)
    assert world.engine.progress.kept_since > 24
    world.nodes.lose("b", "d")  # `parse.1` and `window`
    tick(world, 2)
    restore(world, "a", "c")
    again = fed(world)  # where `parse.1` comes from the checkpoint, it can feed its readers
    assert "parse.1" not in again or not again & {"window.0", "window.1"}
    finish(world, expected)


def test_a_source_that_is_lost_too_is_read_from_the_checkpoint_on(
    world: World, expected: dict[str, bytes], watch: Watch
) -> None:
    lose(world, "a", "c")  # `tweets.0`, `parse.0`, `window.2`, `all.0`
    restore(world, "b", "d")
    assert "parse.0" in fed(world)
    finish(world, expected)
    assert "parse.0" not in watch.read
    assert world.engine.desired.generation == 1


@pytest.mark.wide
@pytest.mark.parametrize("then", ["placed", "later"])
def test_a_target_that_is_lost_too_is_given_what_follows_its_checkpoint(
    tmp_path: Path, expected: dict[str, bytes], then: str
) -> None:
    """Its target comes from the checkpoint, now or when there is room, so `parse` begins there, too."""
    changes = {k: v for k, v in MODE.items() if "window" not in k}
    world = world_of(tmp_path, changes)
    world.run(past(25))
    newest = world.engine.punctuations.newest
    lose(world, "c", "d")
    restore(world, "a", "b", without=["window.0"] if then == "later" else [])
    assert fed(world) == {"parse.0"}
    install = world.engine.upstream.install("parse.0")
    assert install is not None
    assert (install.position, install.replays_to) == (newest, newest)
    tick(world, 3)
    restore(world, "a", "b")
    finish(world, expected)
    assert world.engine.desired.generation == 1


@pytest.mark.wide
def test_a_target_that_is_lost_later_needs_what_was_never_given_and_everything_goes_back(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """What a partition makes while it is fed again is not what it gave then, so nobody is given it."""
    changes = {k: v for k, v in MODE.items() if "window" not in k}
    world = world_of(tmp_path, changes)
    world.run(past(25))
    lose(world, "c")
    restore(world, "a", "b")
    assert fed(world) == {"parse.0"}
    low = world.engine.upstream.install("parse.0").replays_to  # type: ignore[union-attr]
    assert low is not None and low > world.engine.punctuations.newest
    lose(world, "d")
    restore(world, "a")
    world.run(lambda e: bool(e.not_kept) or e.done)
    assert world.engine.not_kept == {"window.0"}
    finish(world, expected)
    assert world.engine.desired.generation == 2


def test_it_is_lost_again_while_it_is_fed(world: World, expected: dict[str, bytes], watch: Watch) -> None:
    lose(world, "d")
    world.nodes.start("e", "f")
    for node in ("e", "f"):
        restore(world, node)
        assert fed(world) == {"window.0"}
        if node == "e":
            world.nodes.lose("e")
            tick(world, 2)
            assert "window.0" in world.engine.failed
    finish(world, expected)
    assert watch.read == []
    assert world.engine.desired.generation == 1


def test_a_host_that_began_anew_on_a_node_that_lives(
    world: World, expected: dict[str, bytes], watch: Watch
) -> None:
    """Only the state is lost: another generation tells the new try from the old one."""
    world.nodes.start("d")
    tick(world, 2)
    engine = world.engine
    assert engine.failed["window.0"].kind is FailureKind.STATE_LOST
    newest = engine.punctuations.newest
    world.want(1, newest, AT, retain=True, lines={"window.0": Origin(2, newest)})
    assert fed(world) == {"window.0"}
    finish(world, expected)
    assert watch.read == []


@pytest.mark.wide
def test_a_new_driver_takes_everything_back_to_the_checkpoint(
    world: World, expected: dict[str, bytes]
) -> None:
    lose(world, "d")
    restore(world, "a")
    tick(world, 1)
    newest = world.engine.punctuations.newest
    world.driver()
    world.engine.begin(newest)
    world.want(2, newest, world.spread("a", "b", "c"), retain=True)
    assert fed(world) == set()
    finish(world, expected)


@pytest.mark.wide
def test_everything_goes_back_to_what_was_stored_of_it_afterwards(
    tmp_path: Path, expected: dict[str, bytes], watch: Watch
) -> None:
    """A checkpoint that is taken behind what was rebuilt holds all that later output depends on."""
    watch.begin()
    world = world_of(tmp_path)
    world.run(past(15))
    lose(world, "c", "d")
    restore(world, "a", "b")
    before = world.engine.punctuations.newest
    world.want(1, before, world.engine.desired.assignment)
    world.run(lambda e: e.punctuations.newest > before and past(e.punctuations.newest + 2)(e))
    back(world)
    finish(world, expected)
    assert watch.compared > 20


@pytest.mark.wide
def test_at_the_end_of_the_stream_the_last_checkpoint_is_complete(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointStore, "complete", lambda *_: (_ for _ in ()).throw(ChainError("never")))
        patch.setattr(engine_module, "complete_checkpoints", lambda _: None)
        world.run(past(61))
        lose(world, "d")
        restore(world, "a")
        assert fed(world) == {"window.0"}
    assert world.engine.final == 61
    finish(world, expected)
    assert world.engine.punctuations.newest == 61
    assert world.engine.desired.generation == 1


@pytest.mark.wide
def test_code_that_raises_when_it_is_asked_leaves_checkpoints(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    has_no_idea(monkeypatch, after=20)
    world = world_of(tmp_path)
    world.run(past(25))
    assert not any(p.startswith("window") for p in world.engine.upstream.able)
    assert "parse.0" in world.engine.upstream.able
    assert any("window: no upstream backup" in p and "no idea" in p for p in world.engine.problems)
    lose(world, "d")
    restore(world, "a")
    assert fed(world) == set()
    finish(world, expected)
