"""What one operator process costs and does, seen from outside: CPU, memory, and its writes by the API server's audit log."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": ["operator"], "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a process and its children so far."""

    cpu_s: float
    rss_mib: float
    peak_mib: float


def cost(process: subprocess.Popen[bytes]) -> Cost:
    """Raises OSError when it is gone."""
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(words[i]) for i in (11, 12))
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    rss, peak = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return Cost(ticks / os.sysconf("SC_CLK_TCK"), rss, peak)


@dataclass(frozen=True, slots=True)
class Write:
    at: float
    verb: str
    what: str


def writes(audit: Path, since: float, until: float) -> list[Write]:
    """The operator's writes in that time, seconds since the epoch; leases are left out, as they are not its work."""
    found = []
    for line in audit.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        reference = event.get("objectRef", {})
        if since <= at < until and reference.get("resource") != "leases":
            what = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
            found.append(Write(at, event["verb"], what))
    return found


def most_in(found: list[Write], window_s: float) -> float:
    """Highest rate over any window that starts with a write, writes a second."""
    times = sorted(write.at for write in found)
    best, last = 0, 0
    for first, start in enumerate(times):
        while last < len(times) and times[last] < start + window_s:
            last += 1
        best = max(best, last - first)
    return best / window_s


def by_kind(found: list[Write]) -> str:
    """For the report: what was written how often."""
    counts = Counter(f"{write.verb} {write.what}" for write in found)
    return ", ".join(f"{what} {count}" for what, count in counts.most_common(8)) or "none"
