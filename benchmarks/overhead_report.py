"""Medians over rounds, ratios, and whether each lies in its range of ranges.yaml."""

from __future__ import annotations

import statistics
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.overhead_measure import Latency, Parts
from benchmarks.recovery_show import Grid
from reprise.spark_jobs.engine.jobs import STAGES

RANGES = Path(__file__).with_name("ranges.yaml")
THROUGHPUT = {
    "idle": "Reprise, coordinator and checkpoints idle",
    "off": "Reprise, data plane alone",
    "ordered": "Reprise, buffering on throughout",
    "structured": "Structured Streaming, the same batches",
    "large": "Structured Streaming, many batches a trigger",
}
PAPER = {
    "off": "12,000 (fig. 18)",
    "ordered": "12,000 (fig. 18)",
}
"""Su and Zhou, appendix C: most tuples a second of its topology on ten m3.large nodes; for context, not for comparison."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: throughput in tweets a second, or latency at a fixed rate; None where it did not get that far."""

    mode: str
    round: int
    load: tuple[float, float]
    throughput: float | None = None
    latency: Latency | None = None
    parts: Parts | None = None
    reason: str = ""


def ranges(section: str) -> Mapping[str, Mapping[str, float]]:
    """The ranges of one benchmark."""
    found: Mapping[str, Mapping[str, float]] = yaml.safe_load(RANGES.read_text())[section]
    return found


def judge(value: float, limits: Mapping[str, float]) -> bool:
    """Whether a ratio lies in its range."""
    return limits.get("least", value) <= value <= limits.get("most", value)


def ratios(runs: Sequence[Measured]) -> dict[str, float]:
    """By the names of ranges.yaml; only those whose both sides were measured."""
    speed = {m: statistics.median(v) for m, v in _by_mode(runs, "throughput").items()}
    delay = {m: statistics.median(x.median for x in v) for m, v in _by_mode(runs, "latency").items()}
    wanted = [
        ("throughput", speed, a, b) for a, b in (("idle", "off"), ("ordered", "off"), ("idle", "structured"))
    ]
    wanted += [
        ("latency", delay, a, b) for a, b in (("idle", "off"), ("ordered", "off"), ("idle", "structured"))
    ]
    found = {f"{what} {a} / {b}": of[a] / of[b] for what, of, a, b in wanted if a in of and of.get(b)}
    for what, of in (("throughput", speed), ("latency", delay)):
        if "idle" in of and of.get("large"):
            found[f"{what} idle / structured, large batches"] = of["idle"] / of["large"]
    return found


def _by_mode(runs: Sequence[Measured], field: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for run in runs:
        if (value := getattr(run, field)) is not None:
            found.setdefault(run.mode, []).append(value)
    return found


def table(runs: Sequence[Measured]) -> Grid:
    """Throughput and latency side by side, relative to the bare data plane and to Structured Streaming."""
    speed = {m: statistics.median(v) for m, v in _by_mode(runs, "throughput").items()}
    delays = _by_mode(runs, "latency")
    delay = {m: statistics.median(x.median for x in v) for m, v in delays.items()}
    rows = []
    for mode, words in THROUGHPUT.items():
        late = [x for x in delays.get(mode, []) if not x.kept_up]
        rows.append(
            (
                words,
                f"{speed[mode]:,.0f}" if mode in speed else "-",
                _of(speed, mode, "off"),
                _of(speed, mode, "structured"),
                f"{delay[mode]:.2f}" + (" (did not keep up)" if late else "") if mode in delay else "-",
                _of(delay, mode, "off"),
                _of(delay, mode, "structured"),
                PAPER.get(mode, "-"),
            )
        )
    columns = (
        "", "tweets/s", "of off", "of Structured Streaming", "latency, s", "of off", "of Structured Streaming",
        "paper, tuples/s",
    )  # fmt: skip
    return Grid("Throughput as fast as possible, and latency at a fixed rate (medians)", columns, tuple(rows))


def _of(values: Mapping[str, float], mode: str, base: str) -> str:
    return f"{values[mode] / values[base]:.2f}" if mode in values and values.get(base) else "-"


def verdicts(
    found: Mapping[str, float], section: str = "overhead", requested: Container[str] | None = None
) -> list[str]:
    """One sentence a range; in bold what lies outside, or was not measured.  `requested`: runs; None: all were."""
    lines = []
    for name, limits in ranges(section).items():
        if requested is not None and not all(run in requested for run in name.split(" / ")):
            continue
        wanted = ", ".join(
            f"{word.replace('least', 'at least').replace('most', 'at most')} {n:g}"
            for word, n in limits.items()
        )
        if name not in found:
            lines.append(f"**{name}: not measured (wanted: {wanted})**")
        elif judge(found[name], limits):
            lines.append(f"{name}: {found[name]:.2f} (wanted: {wanted})")
        else:
            lines.append(f"**{name}: {found[name]:.2f}, outside its range (wanted: {wanted})**")
    return lines


def superstep(runs: Sequence[Measured]) -> Grid:
    """Where a superstep's time goes: with one tweet a batch, what is left is what Spark and the protocol take."""
    found = {run.mode: run.parts for run in runs if run.parts is not None}
    rows = []
    for mode, words in (("off", "full batches"), ("empty", "one tweet a batch")):
        if (one := found.get(mode)) is not None:
            per = 1000 * one.job_s / STAGES
            cpu = 1000 * one.operators_cpu_s / STAGES
            rows.append((words, f"{per:.0f}", f"{one.batches:.1f}", f"{cpu:.0f}", f"{cpu / per:.2f}"))
    if "off" in found and "empty" in found:
        floor = found["empty"].job_s / found["off"].job_s
        rows.append(("one tweet / full", f"{floor:.2f}", "", "", ""))
    columns = ("", "superstep, ms", "batches a job", "operators' CPU, ms", "CPU / wall")
    return Grid("Where the time of a superstep goes (data plane alone)", columns, tuple(rows))
