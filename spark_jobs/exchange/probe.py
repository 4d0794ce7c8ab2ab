"""Whether an exchange can run here: what configurations it is not made for, and a tiny one that is really run.

All that an exchange is built on is Spark's own business and may change with any release.  So nothing is concluded from a
version alone: a driver that wants an exchange runs one over its nodes first, and stays with the chain of supersteps where
that fails, for the reason that it says.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import pyspark
from pyspark import SparkContext

from reprise.spark_jobs.exchange.exchange import executor_ids, first_line, in_group
from reprise.spark_jobs.exchange.relays import Relays

PROBE_S = 60.0
"""How long the tiny exchange may take; 1 to 3 s on a machine that has time, most of it to compile and fetch the relays."""
MEET_S = 10.0
"""How long the last message of an executor to the driver may take."""
GROUP = "reprise-exchange-probe"
SPARK = "4.3."
_REFUSED = {
    "spark.dynamicAllocation.enabled": "executors that come and go would end it",
    "spark.speculation": "a task that runs twice would send twice",
    "spark.ssl.enabled": "it has not been tried with Spark's TLS",
    "spark.ssl.rpc.enabled": "it has not been tried with Spark's TLS",
}
_MANAGER = "spark.shuffle.manager.incremental"


class Settings(Protocol):
    """A SparkConf, or a mapping of properties."""

    def get(self, key: str, default: str, /) -> str | None:
        """The property, or `default`."""


def refusal(conf: Settings) -> str | None:
    """Why an application with this configuration stays with the chain; None where it need not.

    Authentication and encryption of Spark (`spark.authenticate`, `spark.network.crypto.enabled`) are no reason: Spark
    leaves this shuffle out of them, but hosts seal their frames, with a key that travels over Spark's RPC.
    """
    if not pyspark.__version__.startswith(SPARK):
        return f"Spark is {pyspark.__version__}, and the exchange is made for {SPARK}x"
    for name, why in _REFUSED.items():
        if (conf.get(name, "false") or "").strip().lower() == "true":
            return f"{name} is true: {why}"
    if (conf.get(_MANAGER, "streaming") or "").strip() != "streaming":
        return f"{_MANAGER} is not `streaming`, which is the one that sends while tasks run"
    return None


def probe(context: SparkContext, hosts: Sequence[str]) -> str | None:
    """Run a tiny exchange over these nodes, which sends a frame from each to each; None when all arrived, else why not.
    Takes `PROBE_S` at most."""
    said: list[str | None] = []
    thread = threading.Thread(target=lambda: said.append(_try(context, hosts)), daemon=True)
    thread.start()
    thread.join(PROBE_S)
    if thread.is_alive():
        context.cancelJobGroup(GROUP)
        return f"a tiny exchange over {len(hosts)} nodes did not end within {PROBE_S:.0f} s"
    return said[0]


def _try(context: SparkContext, hosts: Sequence[str]) -> str | None:
    try:
        relays = Relays.compiled(context)
        trial = relays.trial(hosts, executor_ids(context, hosts))
        in_group(context, GROUP)
        desk = relays.desk(0, len(hosts))
        try:
            arrived = [int(count) for count in trial.collect()]
            met = bool(desk.met(round(1000 * MEET_S)))
        finally:
            desk.close()
    except Exception as error:
        return f"a tiny exchange over {len(hosts)} nodes failed: {first_line(error)}"
    if not met:
        return f"not all of {len(hosts)} nodes have reached the driver within {MEET_S:.0f} s"
    if arrived != [len(hosts)] * len(hosts):
        return f"of {len(hosts)} frames to each of {len(hosts)} nodes, {arrived} arrived"
    return None
