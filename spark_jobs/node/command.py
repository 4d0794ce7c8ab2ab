"""What the driver tells a host and what a host answers.

A command is level-triggered: it says what the host must host and know, not what changed, so a host that missed one (its
task was cancelled, its Spark worker died) is right again after the next.  On its way it is the difference to what the host
has, where it has something (`reprise.spark_jobs.node.orders`).  A report travels whole, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.outside import Outside
from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Range
from reprise.spark_jobs.errors import WireError
from reprise.spark_jobs.state.skips import Skip
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.version import VERSION, require_same

Order = tuple[int, int]
"""Driver epoch and job: what each request to a host names, and in which order requests outrank each other."""


@dataclass(frozen=True, slots=True)
class Install:
    """Start a partition from its snapshot at `position`; `file`: its state, {path, size, sha256}; None where it has none.

    `value`: the greater, the earlier a host fetches it among others (`reprise.algorithms.restore_order`).
    `watermark`: of one that has no file and stored itself by its own clock.  `since`: a source can be asked again for what
    follows this batch; None: for what follows `position`.  `shown`: of one that begins anew at `position`, the last batch
    that its sink is known to show; it shows the others up to there without rows, and marked.  `sent`: of one that is stored
    slot by slot, the last batch whose output is in its log; up to there batches are stepped once more.  `replays_to`: of one
    that is fed by its upstreams, without a stored state, the last batch that is stepped once more and gives nothing.
    `numbered`: its file says how far which input is, in numbers of messages (`batch.order: arrival`, stored by its own
    clock); else messages are numbered from `position` on.  `shadow`: as a standby.  `promotes`: installation of the standby
    that is here and becomes the partition; what was shown goes up to `position`.
    """

    position: int
    file: Mapping[str, Any] | None = None
    value: float = 0.0
    watermark: int | None = None
    since: int | None = None
    shown: int | None = None
    sent: int | None = None
    shadow: bool = False
    promotes: str | None = None
    replays_to: int | None = None
    numbered: bool = False


class Shadow(NamedTuple):
    """The standby of a partition, which sends nothing.  An active one is sent the same and steps as the partition does; to a
    passive one the partition sends how its state has changed."""

    slot: int
    position: int
    """The last batch that it is known to have applied, or whose state it has."""
    again: bool
    """Whether it must be sent everything behind that again; a passive one: whether it is not known to have anything."""
    shown: int
    """The last batch that the partition itself is known to have applied, and shown, or staged until a checkpoint covers
    it."""
    every: int = 0
    """Batches between what a passive one is sent; 0: it is active."""
    installation: str = ""
    """Of a passive one."""

    @property
    def lags(self) -> bool:
        """Whether its position says what it may still ask senders for."""
        return not (self.every and self.again)


class Due(NamedTuple):
    """When batches are due: `batch` in `in_s` seconds from when this was made, and each further one `interval_s` seconds
    after the one before."""

    batch: int
    in_s: float
    interval_s: float


def size_of(file: Mapping[str, Any] | None) -> int:
    """Bytes of a state whose file `Install` or `Ack` names; 0 where there is none."""
    return StateFile.from_json(file).state_bytes if file else 0


GRANT_S = 10.0
"""What a command says of transfers holds for so long without another one."""


@dataclass(frozen=True, slots=True)
class Command:
    """One slot's orders for one job (a chain of supersteps).

    - `hosted`: partitions that belong here, with the installation id of each: a host that has a partition under
      another id reinstalls it.  `installs`: how, for those that may need it.
    - `routes`: slot of every partition at work.  `positions`: confirmed position of every partition at work.
    - `resend`: targets that must be sent everything behind their position again.
    - `due`: when batches up to `horizon` are due: a source begins none before that.  None: as soon as they are released.
    - `ranges`: source partition -> batch -> offsets [start, end).  `final`: the batch that ends bounded sources.
    - `confirmed`: the last job whose report arrived.
    - `stream`: when the stream began (unix seconds): tells it from another one with the same name.  `begins`: the batch of
      the savepoint behind which it began, else 0.  `later`: operators that came after that, each with the batch behind which
      its output begins.
    - `version`: of the driver; a host of another one refuses the command.
    - `covered`: position of the snapshot of each partition that would be restored now: nothing up to there is asked for
      again, so senders may drop it, and sources the ranges.
    - `keeps`: outputs since the newest checkpoint are kept for who may be lost, also while nothing fails.
    - `link`: number of the exchange by which messages travel all the time; 0: they travel with the stages of the job.
      `link_key`: of the exchange, in hex; hosts seal their frames with it (`reprise.spark_jobs.node.seal`).
    - `generation`: of the desired state; messages of an earlier one are not those that partitions of this one await.
    - `snapshot`: partition that is hosted -> batch: it stores itself after the first batch that it applies from there on,
      if it has not since.  It is said again until that is known to be stored.
    - `skips`: which batches are stepped through without the rows of which partitions.  `sealed`: partitions that are lost,
      of which nothing more is taken in.
    - `standbys`: partition -> its standby.  Where that is on this slot, the partition of `hosted` is the standby.
    - `causes`: partition that may be fed again by what it reads (`availability: upstream-backup`, or a standby that may be
      lost with it) -> the last batch of its input on which nothing depends that could still be wanted of it: what follows is
      kept for it, as long as there is room.
    - `within`: partition that is hosted -> seconds in which it is to have read its state and replayed what came after it, if
      it were lost: of those whose queries have an objective, and that are stored slot by slot.
    - `waits`: partitions that are hosted and whose states are not fetched yet, as others come first somewhere; and `hold`:
      snapshots are stored later, as states are fetched.  Both end when no command has come for `GRANT_S`: then no further
      state is fetched, and snapshots are stored.
    - `published`: output that a replay could change may be shown up to this batch (the newest checkpoint).
    - `survey`: nothing is to be done: a later driver asks what is here, and refuses all earlier ones from now on.
    """

    job: int
    epoch: int
    slot: int
    topology: str
    sink: str
    checkpoints: str
    hosted: Mapping[str, str] = field(default_factory=dict)
    installs: Mapping[str, Install] = field(default_factory=dict)
    routes: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[str, int] = field(default_factory=dict)
    resend: tuple[str, ...] = ()
    ranges: Mapping[str, Mapping[int, Range]] = field(default_factory=dict)
    horizon: int = 0
    due: Due | None = None
    final: int | None = None
    punctuations: tuple[int, ...] = ()
    retain: bool = False
    keeps: bool = False
    covered: Positions = field(default_factory=Positions)
    window: int = 64
    budget_s: float = 0.4
    confirmed: int = 0
    published: int = 0
    stream: float = 0.0
    begins: int = 0
    later: Mapping[str, int] = field(default_factory=dict)
    link: int = 0
    link_key: str = field(default="", repr=False)
    generation: int = 0
    snapshot: Mapping[str, int] = field(default_factory=dict)
    skips: tuple[Skip, ...] = ()
    sealed: tuple[str, ...] = ()
    standbys: Mapping[str, Shadow] = field(default_factory=dict)
    causes: Mapping[str, int] = field(default_factory=dict)
    within: Mapping[str, float] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    hold: bool = False
    survey: bool = False
    version: str = VERSION

    @property
    def order(self) -> Order:
        """Which job this is; a later one compares greater."""
        return self.epoch, self.job

    @property
    def ordered(self) -> bool:
        """Whether partitions apply aligned that else apply in the order of arrival (`batch.order`): during an incident."""
        return self.retain

    def silent(self, partition: str) -> bool:
        """Whether a partition that is hosted here is a standby."""
        shadow = self.standbys.get(partition)
        return shadow is not None and shadow.slot == self.slot


@dataclass(frozen=True, slots=True)
class Ack:
    """A partition's state at `position` is stored; `file` None: the partition has no state to store.

    `installation`: whose state it is.  Another installation of the same partition, made after a rollback, has another one.
    `channels`: target -> first batch of output for it that is in the file; of a source: that it can read again.
    `watermark`: of a partition that has no file.  `forced`: messages have made it store itself.  `sent`: of one that
    is stored slot by slot, the last batch in its log; `position` is that of its oldest slot then.  `footprints`: how many
    slots it has written into what is stored, each as often as it was.  `made` and `inputs`: of one that applies in the order
    of arrival and stores itself by its own clock, the number of its last message, and source -> [marker, taken] as in
    `reprise.algorithms.recovery_line.Heard`; `channels` are numbers of messages then.
    """

    partition: str
    installation: str
    position: int
    file: Mapping[str, Any] | None
    channels: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None
    forced: bool = False
    sent: int | None = None
    footprints: int = 0
    made: int | None = None
    inputs: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a partition began with: bytes of its stored state that the store has given, which are none where all of it was on
    the disk of this node, and seconds of reading the state and of taking it in."""

    bytes: int = 0
    seconds: float = 0.0
    slots: int = 0
    """Footprints and closings that were read, where it is stored slot by slot."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Work of one partition since it was installed: CPU seconds of its thread, bytes and rows of its input; and what it
    began with, as `Loaded`."""

    cpu_s: float
    input_bytes: int = 0
    rows: int = 0
    load_bytes: int = 0
    load_s: float = 0.0
    aim: tuple[int, int, float, float] | None = None
    """Of one with an objective: the fields of its `Aim`."""
    watermark: int | None = None
    """Of the last batch that it has applied, microseconds of event time; `END_OF_TIME` where its input has ended."""
    waits_for: Outside | None = None
    """What of the outside it waits for."""


class Held(NamedTuple):
    """Output that a node keeps, and what its states take where their memory has a limit."""

    memory: int
    """Bytes in memory."""
    disk: int
    """Bytes on disk."""
    since: int
    """Whatever is restored from this batch or a later one is sent from there all that it needs."""
    state_memory: int = 0
    """Bytes of states in memory."""
    state_disk: int = 0
    """Bytes of their files on disk."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a host did in one job.

    A partition that is `installed` and neither in `positions` nor in `failed` is still being installed: its checkpoint store
    is away, and the host tries again.  `outputs`: (output partition, batch, unix seconds) of each sink write.  `not_kept`:
    partitions that need output of this host which was dropped for want of room.
    """

    slot: int
    host: str
    positions: Mapping[str, int]
    installed: Mapping[str, str]
    failed: Mapping[str, Failure] = field(default_factory=dict)
    acks: tuple[Ack, ...] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    outputs: tuple[tuple[str, int, float], ...] = ()
    problems: tuple[str, ...] = ()
    memory: int = 0
    disk: int = 0
    busy_s: float = 0.0
    staged: int = 0
    spilled: int = 0
    """Bytes of output that this host has ever moved to disk."""
    state_memory: int = 0
    """Bytes of states in pages that are in memory, where that has a limit."""
    state_disk: int = 0
    """Bytes that files of states take which exceed it."""
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What each partition of an operator counts (`Operator.counters`); those that count nothing are left out."""
    not_kept: tuple[str, ...] = ()
    kept_since: int = 0
    """Whatever is restored from this batch or a later one is sent from here all that it needs."""
    since: Mapping[str, int] = field(default_factory=dict)
    """Partition here -> the least batch from which each of its targets could be restored with what it holds, of those that
    hold less than what the driver has not called stored."""
    states_here: int = 0
    """States that this host has ever read from its node's own copies, to begin partitions with."""
    states_there: int = 0
    """States that it had to read from the checkpoint store."""
    header_bytes: int = 0
    """Bytes that this host has ever sent to others for communication-induced checkpoints, beside rows."""
    message_bytes: int = 0
    """Bytes of rows that it has ever sent to others, each as often as it was sent; not to standbys."""
    standby_bytes: int = 0
    """Bytes of rows, states and outputs that it has ever sent to standbys on other nodes."""
    files_stored: int = 0
    """States that this host has ever stored."""
    pause_s: float = 0.0
    """Seconds for which partitions stood still while these states were frozen."""
    store_s: float = 0.0
    """Seconds from freezing these states until their files were there, summed over them."""
    stepped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Sealed partition -> each of its readers here, with the last batch that it has stepped."""
    unfed: tuple[str, ...] = ()
    """Partitions whose standbys need output of this host which it does not have any more."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Partition that `Command.causes` names -> the batch behind which this host can send it everything, where that is later
    than what is covered."""
    oldest: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Of those that `Command.causes` names, the ones of which only the state says how far back they reach: a batch, and the
    first batch of input on which output behind that depends; None where their code does not say it."""
    horizon: int = 0
    """In the answer to a survey: the last batch that this host knows to be released."""
    led_by: int = 0
    """In the answer to a survey: epoch of the driver before this one that this host has taken a request of last."""
    refused: str = ""
    """In the answer to a survey: why this host has dropped what it had; empty where it has not."""
    version: str = VERSION

    @property
    def held(self) -> Held:
        """What is kept there."""
        return Held(self.memory, self.disk, self.kept_since, self.state_memory, self.state_disk)

    def encode(self) -> bytes:
        """JSON bytes."""
        # `asdict` would copy everything in it, with each job anew; so it would what is in it
        report = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(report, separators=(",", ":"), default=_plain).encode()

    @staticmethod
    def decode(data: bytes) -> Report:
        """The inverse of `encode`; raises WireError, VersionError for one of another version."""
        try:
            raw = json.loads(data)
            require_same(raw.get("version"), "an executor", "the driver")
            raw["acks"] = tuple(Ack(**a) for a in raw["acks"])
            raw["failed"] = {
                p: Failure(FailureKind(x["kind"]), x["reason"], x["file"]) for p, x in raw["failed"].items()
            }
            raw["usage"] = {
                p: Usage(**u | {"aim": u["aim"] and tuple(u["aim"]), "waits_for": _outside(u["waits_for"])})
                for p, u in raw["usage"].items()
            }
            raw["outputs"] = tuple((p, b, t) for p, b, t in raw["outputs"])
            raw["oldest"] = {p: (batch, oldest) for p, (batch, oldest) in raw["oldest"].items()}
            for name in ("problems", "not_kept", "unfed"):
                raw[name] = tuple(raw[name])
            return Report(**raw)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError(f"not a report: {error}") from error


def _plain(value: object) -> dict[str, object]:
    """The fields of a dataclass, which may hold others.  TypeError: it is none."""
    return {f.name: getattr(value, f.name) for f in fields(value)}  # type: ignore[arg-type]


def _outside(told: str | None) -> Outside | None:
    return None if told is None else Outside(told)
