"""How late messages of a continuous exchange are, and how many bytes it carries, on one machine.

    python -m benchmarks.exchange [--nodes 3 4] [--output text|json]

For each number of nodes a cluster is started, with processes that stand for the partition hosts and send to all others:
400 messages of 100 bytes a second each, alone, beside ordinary jobs of one stage and beside chains of three stages; then
frames of 65 kB as fast as they are taken.  A message's time is from its sender's call until its receiver has it.  Jobs
beside are the peer: what a message would take that travels with a stage is at least the time of such a chain, divided by
its two shuffles.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from tools.testbed.exchange_lab import run

STEPS = ("late_hosts", "small", "beside_a_job", "beside_a_chain", "bulk")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exchange")
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 4])
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    figures = {nodes: measured(nodes) for nodes in options.nodes}
    if options.output == "json":
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    else:
        for nodes, steps in figures.items():
            for line in lines(nodes, steps):
                print(line)
    return 0


def measured(nodes: int) -> dict[str, dict[str, Any]]:
    """What each step finds; the first one only waits until all relays have met their hosts."""
    with EmbeddedCluster(ClusterConfig(nodes=nodes, start_timeout_s=600.0)) as cluster:
        found = run(cluster, STEPS, 1200.0)
    return {step["step"]: step for step in found if step["step"] != "late_hosts"}


def lines(nodes: int, steps: dict[str, dict[str, Any]]) -> list[str]:
    """A line a step."""
    said = []
    for name, step in steps.items():
        line = f"{nodes} nodes, {name}: {step['count']} messages, p50 {step['p50_ms']} ms, p99 {step['p99_ms']} ms"
        if "job_ms" in step:
            line += f", {step['jobs']} jobs of {step['job_ms']} ms"
        if "chain_ms" in step:
            line += f", {step['jobs']} chains of {step['chain_ms']} ms"
        if name == "bulk":
            line += f", MB/s into each node {step['mb_s']}"
        said.append(f"{line}; missing {step['missing']}, load average {step['load']:.1f}")
    return said


if __name__ == "__main__":
    sys.exit(main())
