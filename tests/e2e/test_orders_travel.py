"""What Spark gives to whom: a task of the first stage has its own slot's orders alone, and is to run at the slot's host.

In a process of its own, as a SparkContext takes over the Python process it is in; tasks are serialised as Spark sends them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.controller.agent.java import find_java

pytestmark = [pytest.mark.slow, pytest.mark.wide]

_DRIVER = """
import json, sys
from pyspark import SparkContext
from reprise.spark_jobs.engine.chain import Chain, configuration
from reprise.spark_jobs.node.shim import Stage

HOSTS = [f"127.0.7.{k}" for k in range(1, 6)]
ORDERS = [bytes([65 + k]) * (50_000 if k == 2 else 1_000) for k in range(5)]
context = SparkContext(conf=configuration("local[1]", "orders", {}))
chain = Chain(context, HOSTS)
rows = chain._ordered(ORDERS)
java = rows._jrdd.rdd()
def size(value):
    held = context._jvm.java.io.ByteArrayOutputStream()
    out = context._jvm.java.io.ObjectOutputStream(held)
    out.writeObject(value)
    out.close()
    return held.size()

found = {
    "sizes": [size(part) for part in java.partitions()],
    "places": [java.preferredLocations(part).mkString(",") for part in java.partitions()],
    "rdd": size(java),
    "stages": [
        size(rdd._jrdd.rdd())
        for number, of in enumerate((rows, chain._begin))
        for rdd in [of.mapPartitionsWithIndex(Stage((1, 1), number, False)).partitionBy(5, lambda slot: slot)]
    ],
    "rows": rows.mapPartitionsWithIndex(
        lambda slot, own: [(slot, key, value[:1].decode(), len(value)) for key, value in own]
    ).collect(),
}
context._jvm.java.lang.System.out.flush()
context.stop()
print("FOUND " + json.dumps(found), flush=True)
"""


def test_each_task_has_the_orders_of_its_own_slot_and_no_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        env=os.environ | {"JAVA_HOME": str(find_java(tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")] or [
        done.stdout[-2000:]
    ]
    found = json.loads(line.removeprefix("FOUND "))
    hosts = [f"127.0.7.{k}" for k in range(1, 6)]
    assert found["rows"] == [
        [slot, [slot, ["at", host]], chr(65 + slot), 50_000 if slot == 2 else 1_000]
        for slot, host in enumerate(hosts)
    ]
    assert found["places"] == hosts
    assert [size // 10_000 for size in found["sizes"]] == [0, 0, 5, 0, 0], (
        "the large one is in one task alone"
    )
    assert max(found["rdd"], *found["stages"]) < 30_000, "what all tasks share has nobody's orders"
