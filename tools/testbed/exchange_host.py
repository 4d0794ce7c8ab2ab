"""A process that stands for a partition host in an exchange: `python -m tools.testbed.exchange_host FOLDER`.

It takes orders as lines of JSON on its input, and gives an answer to each: {"attach": 3}, {"there": 3}, {"send": {...}},
{"report": true}.  Each frame says who sent it, which one it is on its link, and when; so the receiver knows whether all came
once and in order.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from reprise.spark_jobs.node.links import Links
from reprise.spark_jobs.node.seal import KEY_BYTES

HEAD = struct.Struct(">IIQQ")
"""Number of the exchange, source slot, number on the link, time (monotonic ns)."""


class Told:
    """What came, of the exchange that is attached."""

    def __init__(self, home: Path) -> None:
        self.lock = threading.Lock()
        self.number = -1
        self.clear()
        self.links = Links(home, self.heard)

    def clear(self) -> None:
        self.count: dict[int, int] = {}
        self.wrong: list[str] = []
        self.late_ms: list[float] = []
        self.bytes, self.first, self.last = 0, 0.0, 0.0
        self.sent: dict[int, int] = {}
        self.done = True

    def heard(self, number: int, frame: bytes) -> None:
        now = time.monotonic_ns()
        exchange, source, position, sent = HEAD.unpack_from(frame)
        with self.lock:
            due = self.count.get(source, 0)
            body = frame[HEAD.size :]
            if (exchange, number, position) != (self.number, self.number, due) or body != _body(
                source, position, len(body)
            ):
                self.wrong.append(f"{exchange} in {number} from {source}: {position} and not {due}")
            self.count[source] = due + 1
            self.late_ms.append((now - sent) / 1e6)
            self.bytes += len(frame)
            self.first = self.first or now / 1e9
            self.last = now / 1e9

    def send(
        self, slot: int, slots: int, count: int, gap_s: float, size: int, only: int | None = None
    ) -> None:
        """`count` frames to each other slot, in turn; waits where there is no room."""
        targets = [t for t in range(slots) if t != slot] if only is None else [only]
        for _ in range(count):
            for target in targets:
                position = self.sent.get(target, 0)
                head = HEAD.pack(self.number, slot, position, time.monotonic_ns())
                deadline = time.monotonic() + 60.0
                while not self.links.send(target, head + _body(slot, position, size)):
                    if time.monotonic() > deadline or not self.links.ready:
                        self.done = True
                        return
                    time.sleep(0.001)
                self.sent[target] = position + 1
            if gap_s:
                time.sleep(gap_s)
        self.done = True

    def report(self) -> dict[str, Any]:
        with self.lock:
            late = sorted(self.late_ms)
            span = self.last - self.first
            return {
                "sent": self.sent,
                "got": self.count,
                "wrong": self.wrong[:3],
                "done": self.done,
                "late_ms": late,
                "bytes": self.bytes,
                "span_s": span,
            }


_NOISE = random.Random(0).randbytes((9 << 20) + 251)
"""Nothing that could be compressed; as long as the largest frame and the greatest offset."""


def _body(source: int, position: int, size: int) -> bytes:
    begin = (source * 31 + position) % 251
    return _NOISE[begin : begin + size]


def main() -> None:
    """Until the input ends."""
    told = Told(Path(sys.argv[1]))
    print("UP", flush=True)
    for line in sys.stdin:
        order, answer = json.loads(line), {}
        if "attach" in order:
            with told.lock:
                told.clear()
                told.number = order["attach"]
            told.links.attach(order["attach"], bytes(KEY_BYTES))
        if "there" in order:
            answer = {"there": told.links.there(order["there"]), "ready": told.links.ready}
        if "send" in order:
            told.done = False
            threading.Thread(target=told.send, kwargs=order["send"], daemon=True).start()
        if "report" in order:
            answer = told.report()
        print(json.dumps(answer), flush=True)
    told.links.close()


if __name__ == "__main__":
    main()
