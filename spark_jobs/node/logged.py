"""A partition whose state is stored slot by slot, in a log of its own (`reprise.spark_jobs.node.partition_log`).

After a loss it begins with slots of different ages.  It counts as being at T, the oldest of them, so its senders give it
what follows; batches up to t_c, the newest in the log, are stepped once more, without the rows that a slot has seen.  What
they give is dropped: it is in the log, from which readers are sent it, and in the sink.  From t_c + 1 on all is as before.

Invariant: nothing is frozen, written or sent of a batch that is stepped once more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from reprise.algorithms.recovery_time import LEAST_ROWS, ROWS_S, SLOTS_S, Aim, derive
from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.errors import DamagedError, NewerVersionError, StoreError
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.channels import put_back
from reprise.spark_jobs.node.command import Install
from reprise.spark_jobs.node.partition_log import EventualCheckpoint, Pace, PartitionLog, eventual_checkpoint
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.operators.slotted import Slotted, slotted, unseen
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.state.checkpoints import CheckpointStore, said_by_store
from reprise.spark_jobs.state.footprints import Targets
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.topology import Partition, StreamTopology, from_json, is_deterministic


class LoggedRuntime(OperatorRuntime):
    """A partition of an operator with slots.  `log`: what it writes; None: it is stored in another way from now on."""

    def __init__(
        self,
        partition: Partition,
        operator: Slotted,
        position: int,
        budget: Budget,
        sink: Sink | None,
        log: PartitionLog | None,
    ) -> None:
        super().__init__(partition, operator, None, position, budget, sink)
        self.slotted = operator
        self.log = log
        self.seen: Mapping[Hashable, int] = {}
        self.aim: Aim | None = None
        """How much a recovery may have to do, where that follows from an objective."""
        self._rows = 0

    def begin(self, checkpoint: EventualCheckpoint) -> None:
        """Begin with slots of different ages, at the position of the oldest.  Raises what `load` of the operator raises."""
        found = checkpoint.found
        self.replays_to, self.watermark = found.at, found.end.watermark
        self.seen = found.seen if found.since < found.at else {}
        self.state = self.slotted.load(self.partition.place, checkpoint.slots, found.end.rest)
        self.slotted.retype(self.state, found.newest.types)
        for buffer in self.buffers.values():
            buffer.floor = buffer.cursor = found.at + 1  # what it gave before is in the log, or nowhere
        put_back(self.buffers, checkpoint.output)

    def advance(self, wanted: Callable[[str], bool]) -> bool:
        if not super().advance(wanted):
            return False
        if self.position == self.replays_to:
            self.seen = {}
        elif self.position > self.replays_to and self.log is not None:
            self.log.applied(self.position, self._rows, self.state, self.watermark)
        return True

    def aims(self, within_s: float | None) -> None:
        """A recovery is to have read the state and replayed what came after it within so many seconds, at the rates at which
        this partition was seen to do so; None: nobody says."""
        if self.log is None or within_s is None:
            self.aim = None
            return
        loaded, rows_s, slots_s = self.loaded, float(ROWS_S), float(SLOTS_S)
        if self.input_rows >= LEAST_ROWS and self.cpu_s > 0:
            rows_s = self.input_rows / self.cpu_s
        if loaded.slots and loaded.seconds > 0:
            slots_s = loaded.slots / loaded.seconds
        open_slots = self.slotted.open_count(self.state)
        self.aim = derive(within_s, slots_s, rows_s, open_slots, self.log.rows_between)
        self.log.aim(Targets(self.aim.extent, self.aim.replay))

    def _applied(self, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        self._rows = sum(each.table.num_rows for each in inbox.inputs)
        return super()._applied(unseen(self.slotted, inbox, self.seen) if self.seen else inbox)


def read_log(store: CheckpointStore, install: Install) -> EventualCheckpoint:
    """What a partition begins with that is stored in a log.  StoreError: not now; another CheckpointError: it is damaged."""
    assert install.file is not None and install.sent is not None
    file = StateFile.from_json(install.file)
    with said_by_store(file.path):
        segments = store.read_segments(file)
    try:
        found = eventual_checkpoint(segments, install.sent)
    except (MemoryError, NewerVersionError) as error:  # of this node, and no fault of the file
        raise StoreError(f"{file.path}: {type(error).__name__}: {error}") from error
    except Exception as error:  # whatever its bytes make of Arrow and JSON
        said = f"{type(error).__name__}: {error}"
        raise DamagedError(f"the log that {file.path} ends is damaged: {said}") from error
    if found.found.since != install.position:
        raise DamagedError(
            f"the log that {file.path} ends is damaged: its oldest slot is of batch {found.found.since}, and of "
            f"batch {install.position} by the record"
        )
    return found


def logged(
    partition: Partition,
    operator: Operator,
    resource: StreamTopology,
    install: Install,
    budget: Budget,
    sink: Sink | None,
    clock: Callable[[], float],
) -> LoggedRuntime | None:
    """The runtime of a partition that is stored in a log, or was; None: neither.  `clock`: monotonic seconds.  TypeError: it
    was, and its class has no slots any more."""
    policy, with_slots = resource.checkpoint, slotted(operator)
    keeps_log = policy.eventual and with_slots is not None and _replays_are_equal(resource.document)
    if install.sent is None and not keeps_log:
        return None
    if with_slots is None:
        raise TypeError(
            f"{partition.id} was stored slot by slot, and {type(operator).__name__} cannot begin with slots, as it has "
            "methods of its own, or none, for its state: go back to the class before, drain with `protocol: coordinated`, "
            "and then change it"
        )
    pace, log = policy.eventual_pace, None
    if keeps_log and pace is not None:
        targets = Targets(pace.extent, pace.replay)
        log = PartitionLog(with_slots, targets, Pace(pace.spend_s, pace.every_s), clock)
    return LoggedRuntime(partition, with_slots, install.position, budget, sink, log)


@lru_cache(maxsize=4)
def _replays_are_equal(document: str) -> bool:
    """Whether all operators of a resource are deterministic: else nothing is stored slot by slot, as a replay has to give
    each slot the same rows.  `document`: the resource as JSON; each partition of a node asks."""
    return all(map(is_deterministic, from_json(document).operators))
