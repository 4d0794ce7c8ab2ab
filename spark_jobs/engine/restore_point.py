"""What partitions are restored from: which checkpoints can be used, and what each partition is installed from.

A store that is away is not a damaged checkpoint: it is asked again, after pauses that grow, and meanwhile the answer is the
last error.  What can never be used again is in `bad`, so that a coordinator that asked for it chooses another: bytes that
are wrong, a checkpoint behind input that was given up, and one behind output that is shown and that a replay could change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.engine.punctuation import Punctuations
from reprise.spark_jobs.errors import CheckpointError, DamagedError
from reprise.spark_jobs.node.command import Install
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.topology import StreamTopology, is_deterministic


class LineError(CheckpointError):
    """The partitions of a checkpoint are at positions of their own: `reprise.spark_jobs.engine.local_lines` finds from what
    each is restored."""

    def __init__(self, position: int) -> None:
        super().__init__(f"checkpoint {position} is a line of snapshots at positions of their own")
        self.position = position


STORE_PATIENCE_S = 10.0
"""The longest time between two attempts to read a checkpoint from a store that is away."""


@dataclass(slots=True)
class RestorePoint:
    """The restore point of one driver's life.  `problems`: where trouble is said; `clock`: monotonic seconds."""

    resource: StreamTopology
    store: CheckpointStore
    ledger: Ledger
    punctuations: Punctuations
    problems: list[str]
    clock: Callable[[], float] = time.monotonic
    later: Mapping[str, int] = field(default_factory=dict)
    """Operators that came later, each with the batch behind which it begins: it has nothing there, whoever had its name
    before."""
    bad: set[int] = field(default_factory=set)
    """Complete checkpoints that cannot be used."""
    installs: Mapping[str, Install] = field(default_factory=dict)
    """What each partition that has state is installed from."""
    _own: dict[int, Manifest] = field(default_factory=dict)
    """Manifests of the newest checkpoints that this driver has completed: no plan waits for the store to be told them."""
    _positions: Positions | None = None
    """What `installs` is of."""
    _refused: int | None = None
    """The checkpoint that could not be read, `_why`, after how many attempts, and when it is asked for again."""
    _why: CheckpointError = field(default_factory=CheckpointError)
    _asked: int = 0
    _ask_again: float = 0.0
    _replays: tuple[StreamTopology, bool] | None = None
    """Whether a replay of this resource gives the same again.  Each report asks, and to answer all operators are made."""

    def find(self, positions: Positions, back: bool) -> Mapping[str, Install]:
        """What each partition is installed from at its position; nothing has changed yet.

        `back`: what is at work goes back to there, too.  CheckpointError: a checkpoint cannot be used, and `bad` says so.
        StoreError: not now.
        """
        if back:
            self._require_replayable(positions.oldest)
        if not back and positions == self._positions:
            return self.installs
        found = {k: self._read(k) for k in positions.distinct}
        installs = dict(found[positions.everybody])
        for partition, k in positions.others.items():
            installs[partition] = found[k].get(partition, Install(k))
        return installs

    def take(self, positions: Positions, installs: Mapping[str, Install]) -> None:
        """Let each partition be installed from what `find` has found there from now on."""
        self.installs, self._positions = installs, positions

    def complete(self, manifest: Manifest) -> None:
        """Make a checkpoint exist; raises what `CheckpointStore.complete` raises."""
        self.store.complete(manifest)
        self._own[manifest.position] = manifest
        for old in sorted(self._own)[: -self.resource.checkpoint.keep]:
            del self._own[old]

    def manifest(self, position: int) -> Manifest:
        """What a checkpoint holds; the store is asked where another driver has completed it.  CheckpointError as there."""
        return self._own.get(position) or self.store.manifest(position)

    def _read(self, position: int) -> Mapping[str, Install]:
        if position < self.ledger.trimmed:
            self.bad.add(position)
            raise CheckpointError(
                f"the stream cannot begin again behind batch {position}: its input up to batch {self.ledger.trimmed} "
                "was given up when a later checkpoint was complete"
            )
        if position < (since := max(self.later.values(), default=0)):
            self.bad.add(position)
            raise CheckpointError(
                f"the stream does not go back behind batch {since}, where queries were added: their output begins there"
            )
        if position == 0:
            return {}
        if self._refused == position and self.clock() < self._ask_again:
            raise self._why
        try:
            manifest = self.manifest(position)
        except CheckpointError as error:
            self._asked = self._asked + 1 if self._refused == position else 0
            self._refused, self._why = position, error
            self._ask_again = self.clock() + min(0.2 * 2**self._asked, STORE_PATIENCE_S)
            if isinstance(error, DamagedError):
                self.condemn(position)
            raise
        self._refused = None
        if manifest.apart:
            raise LineError(position)
        return {
            p: Install(s.position, None if s.file is None else s.file.to_json())
            for p, s in manifest.snapshots.items()
            if position > self.later.get(p.rpartition(".")[0], -1)
        }

    @property
    def deterministic(self) -> bool:
        """A replay gives the same again."""
        if self._replays is None or self._replays[0] is not self.resource:
            same = not self.resource.arrival and all(map(is_deterministic, self.resource.operators))
            self._replays = self.resource, same
        return self._replays[1]

    def _require_replayable(self, position: int) -> None:
        """A coordinator that has not heard of the newest checkpoint may ask for the one before.  Output up to the newest may
        be shown by now; where a replay could differ from it, the one before is not used while the newest is whole.  Where
        that is damaged there is no better: then those outputs wait for a person, and the other queries go on."""
        if position >= self.punctuations.newest or self.deterministic:
            return
        if self.punctuations.newest in self.bad:
            self._lower_newest()
        newest = self.punctuations.newest
        if position < newest:
            self.bad.add(position)
            why = (
                "input is applied as it arrives"
                if self.resource.arrival
                else "an operator is not deterministic"
            )
            raise CheckpointError(
                f"the stream does not go back behind checkpoint {newest}, whose output is shown: {why}, "
                "so a replay could differ from it"
            )

    def condemn(self, position: int) -> None:
        """A complete checkpoint is damaged: it is never used again by this driver, and the one before is the newest."""
        self.bad.add(position)
        if self.punctuations.newest in self.bad:
            try:
                self._lower_newest()
            except CheckpointError as error:  # asked again before anything goes back
                self.problems.append(str(error))

    def _lower_newest(self) -> None:
        """Lower the newest one to the newest checkpoint that is not known to be damaged.  StoreError: the store cannot
        be asked now."""
        whole = [k for k in self.store.positions() if k not in self.bad]
        self.punctuations.newest = max(whole, default=0)
