"""Epochs: which driver may write to a checkpoint location, told by the location itself.

Problem: a driver that is given up (frozen, cut off from ZooKeeper, its machine only seeming lost) may still reach the store.
ZooKeeper can tell it that a later one has begun only while it can be reached, and its counter can be lost while the stream
lives on.  So a driver claims its epoch beside the stream: `epochs/<n>.json`, created exclusively, greater than all before.

What holds, with the order in which things are done (docs/decisions/0011-driver-epochs.md):
- A driver completes a checkpoint by writing its manifest and looking for a later claim after that.  A later driver claims
  first and lists the checkpoints after that.  So either the old one sees the claim, or the new one sees the manifest.
- What the new one saw it writes down (`epochs/<n>.checkpoints.json`) before it does anything else.  A manifest counts if the
  newest such record has it, or if its driver is of that epoch or a later one: what an old driver writes late never counts.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping

from reprise.spark_jobs.errors import DamagedError, StoreError, SupersededError
from reprise.spark_jobs.state.driver_records import EPOCHS, newest_written, record_epochs, record_name
from reprise.spark_jobs.storage.files import Files

log = logging.getLogger("reprise.epochs")
SEEN = ".checkpoints.json"
KEPT = 20
"""Earlier epochs whose files stay, for people; only the newest of each kind counts."""


def _claim(epoch: int) -> str:
    return record_name(EPOCHS, epoch)


def _seen(epoch: int) -> str:
    return f"{EPOCHS}/{epoch:08d}{SEEN}"


class Fence:
    """The claim of one driver on a location."""

    def __init__(self, files: Files, epoch: int) -> None:
        self._files = files
        self.epoch = epoch

    def check(self) -> None:
        """Raises SupersededError when a later driver has claimed the location, StoreError when nobody can tell: where this
        driver's own claim is not seen, as below a mount point whose volume is gone, a later one would not be seen either."""
        claimed = claims(self._files)
        if (newest := max(claimed, default=0)) > self.epoch:
            raise self.superseded(newest)
        if self.epoch not in claimed:
            raise StoreError(
                f"{_claim(self.epoch)}, which this driver has written, is not in {self._files.name}: is it mounted?"
            )

    def superseded(self, by: int) -> SupersededError:
        """What a driver ends with that finds a later one."""
        return SupersededError(
            f"a driver of epoch {by} has begun in {self._files.name}: this one, of epoch {self.epoch}, ends"
        )

    def record(self, seen: Mapping[int, int]) -> None:
        """Write down which checkpoints count for this driver: position -> epoch of its manifest."""
        self._files.create(_seen(self.epoch), json.dumps(seen).encode())
        for old in [epoch for epoch in claims(self._files) if epoch < self.epoch][:-KEPT]:
            self._files.remove(_claim(old))
            self._files.remove(_seen(old))


def new_token() -> str:
    """A token by which a driver knows its own claims again."""
    return uuid.uuid4().hex


def claim_epoch(location: str, propose: Callable[[int], int], token: str = "") -> Fence:
    """Claim a location for a new driver.  `propose` gives an epoch that is at least its argument and that no other driver
    has been given (the counter in ZooKeeper); it is asked again when another driver was quicker.

    StoreError: the location cannot be read or written, or does not list what was written; nothing is claimed, or a claim
    that does no harm.  `token`: of the driver; who tries again with the same one goes on with the claim that it has made.
    """
    files, token = Files(location), token or new_token()
    files.sweep()
    newest = max(claims(files), default=0)
    least = newest if newest and _token(files, newest) == token else newest + 1
    while True:
        epoch = propose(least)
        name = _claim(epoch)
        claim = json.dumps({"epoch": epoch, "token": token, "began": time.time()}).encode()
        made = files.create(name, claim)
        whose = token if made else _token(files, epoch)
        ours = whose == token
        at_once = made or not ours or _lists_at_once(files, epoch)
        listed = claims(files)
        if ours and (epoch not in listed or not at_once):
            raise StoreError(
                f"{name}, or what was written beside it just now, is not in the listing of {EPOCHS} in {files.name}: "
                "a store whose listings are late would not show this driver that a later one has begun"
            )
        if whose is None and max(listed, default=0) <= epoch:
            raise StoreError(f"{files.name} refuses {name} as if it were there, and it is not")
        if ours and max(listed) == epoch:
            break
        log.info("event=epoch-taken epoch=%d", epoch)
        least = max([*listed, epoch]) + 1
    if files.create(name, claim) or files.passes_over_conditions():
        log.warning(
            "event=store-replaces location=%s reason=%r",
            files.name, "two drivers that create one file at once may both succeed: only ZooKeeper tells them apart",
        )  # fmt: skip
    return Fence(files, epoch)


def _token(files: Files, epoch: int) -> str | None:
    """Whose claim it is; empty where nobody can tell, None where there is none."""
    if (data := files.read(_claim(epoch))) is None:
        return None
    try:
        return str(json.loads(data).get("token", ""))
    except (ValueError, AttributeError):
        return ""


def _lists_at_once(files: Files, epoch: int) -> bool:
    """Whether a new file is listed at once.  The claim of an earlier attempt does not say so: it
    is listed some time."""
    name = f"{epoch:08d}-{uuid.uuid4().hex}.look"
    files.create(f"{EPOCHS}/{name}", b"")
    try:
        return name in files.names(EPOCHS)
    finally:
        files.remove(f"{EPOCHS}/{name}")


def claims(files: Files) -> list[int]:
    """Epochs that drivers have claimed, in order."""
    return record_epochs(files, EPOCHS)


def recorded(files: Files, known: tuple[int, Mapping[int, int]] = (0, {})) -> tuple[int, Mapping[int, int]]:
    """The newest epoch whose driver has written down what it saw, and that: position -> epoch.  0 and nothing: none has.
    `known`: an earlier answer for these files, which is not read again."""
    names = files.names(EPOCHS)
    written = [
        int(stem) for stem in (n.removesuffix(SEEN) for n in names if n.endswith(SEEN)) if stem.isdigit()
    ]
    listed = max(written, default=0)
    claimed = [int(stem) for stem in (n.removesuffix(".json") for n in names) if stem.isdigit()]
    newest = newest_written(lambda epoch: files.exists(_seen(epoch)), listed, claimed)
    if not newest:
        return 0, {}
    if newest == known[0]:
        return known
    name = _seen(newest)
    try:
        found = files.parsed(name, _positions)
        if found is None:  # it is listed: what lists knows more than what reads
            found = files.parsed(name, _positions)
    except (ValueError, AttributeError, TypeError) as error:
        raise DamagedError(f"{name} in {files.name} is damaged: {error}") from error
    if found is None:
        raise StoreError(f"cannot read {name} in {files.name}: it was listed, and is not there")
    return newest, found


def _positions(data: bytes) -> dict[int, int]:
    return {int(position): int(epoch) for position, epoch in json.loads(data).items()}
