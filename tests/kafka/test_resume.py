"""`reprise run --resume` with Kafka on both sides: a run that was killed goes on where it was, with another ZooKeeper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka import pipes
from tests.kafka.broker import Broker
from tools.testbed.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.wide]
REPRISE = [sys.executable, "-c", "from reprise.controller.cli import main; main()"]
ROWS = 120
PATIENCE_S = 240.0


def start(file: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [*REPRISE, "run", "-f", str(file), "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ids(broker: Broker, topic: str) -> list[int]:
    return sorted(row["id"] for row in broker.rows(topic))


def topology(broker: Broker, origin: str, target: str, folder: Path) -> Path:
    """Four seconds between two checkpoints, so that most rows which are sent after one are shown before the next."""
    source = pipes.source(broker, origin, until={f"{origin}/0": ROWS}, batch_rows=10)
    spec = {
        "batch": {"interval": "200ms"},
        "checkpoint": {"everyBatches": 20},
        "nodes": {"count": 2, "cpu": "400m"},
    }
    resource = pipes.pipe(source, pipes.sink(broker, target, key=["id"]), writers=2, **spec)
    file = folder / "pipe.yaml"
    file.write_text(resource.document)
    return file


def test_a_resumed_run_writes_every_row_once(broker: Broker, tmp_path: Path) -> None:
    origin, target, out = broker.topic("in"), broker.topic("out", 2), tmp_path / "out"
    file = topology(broker, origin, target, tmp_path)
    broker.send(origin, pipes.rows(40))
    first = start(file, out)
    try:
        until(
            lambda: first.poll() is not None or covered(out) >= 40,
            "a checkpoint that covers what was sent", PATIENCE_S,
        )  # fmt: skip
        assert first.poll() is None, first.communicate()[0]
        broker.send(origin, pipes.rows(40, first=40))
        until(lambda: ids(broker, target) == list(range(80)), "it is shown", PATIENCE_S, poll_s=0.2)
    finally:
        first.kill()
        first.communicate()
    broker.send(origin, pipes.rows(40, first=80))
    second = start(file, out, "--resume")
    text = second.communicate(timeout=PATIENCE_S)[0]
    assert second.returncode == 0, text
    assert ids(broker, target) == list(range(ROWS))
    record = json.loads((out / "run.json").read_text())
    assert record["checkpoints"][0] > 0
    assert sorted(path.name for path in (out / "checkpoints" / "epochs").glob("????????.json")) == [
        "00000001.json", "00000002.json",
    ]  # fmt: skip


def covered(out: Path) -> int:
    """Rows before the newest complete checkpoint."""
    manifests = sorted((out / "checkpoints").glob("cp-*/COMPLETE.*json"))
    try:
        return max((sum(json.loads(m.read_text())["offsets"].values()) for m in manifests), default=0)
    except FileNotFoundError:  # removed meanwhile, as a newer one is complete
        return 0
