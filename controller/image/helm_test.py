"""`python -m reprise.controller.image prove`: what `helm test` runs, a small topology that the operator must reconcile.

It uses the API as a user would, with rights to that one object alone, and removes what it has made however it ends.
`accepted`: the operator has read this very spec and said so in the status.  `ready`: every query is available, which takes
pods, storage and ZooKeeper as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reprise.controller.crd.crds import GROUP, VERSION
from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.budget import WriteBudget
from reprise.controller.kubernetes.errors import NotFoundError, OperatorError, UnknownError

POLL_S = 1.0
MOUNT = "/var/lib/reprise"


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when the topology got as far as was asked for, 1 with what was seen last when not."""
    options = _parser().parse_args(arguments)
    api = Api(WriteBudget(5, patient=True))
    folder = collection(options.namespace, "streamtopologies", GROUP, VERSION)
    try:
        done, last = prove(
            api,
            folder,
            topology(options.name, options.namespace, options.claim),
            options.until,
            options.timeout,
        )
    except OperatorError as error:
        print(f"the API server refuses: {error}", file=sys.stderr)
        return 1
    print(f"{'reconciled' if done else 'not reconciled'}: {json.dumps(last, sort_keys=True)}")
    return 0 if done else 1


def prove(
    api: Api,
    folder: str,
    body: Mapping[str, Any],
    until: str,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[bool, Mapping[str, Any]]:
    """Create, wait, remove; whether it got there, and the conditions that were seen last."""
    path = f"{folder}/{body['metadata']['name']}"
    _remove(api, path, clock() + timeout_s, clock, sleep)
    api.create(folder, body)
    deadline, last = clock() + timeout_s, {}
    try:
        while clock() < deadline:
            try:
                found = api.get(path)
            except UnknownError:
                found = {}
            last = conditions(found)
            if reached(found, until):
                return True, last
            sleep(POLL_S)
        return False, last
    finally:
        api.delete(path)


def reached(found: Mapping[str, Any], until: str) -> bool:
    """Whether the operator has said this of the spec as it is now."""
    status = found.get("status", {})
    current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
    wanted = {"accepted": "Valid", "ready": "Ready"}[until]
    return current and conditions(found).get(wanted) == "True"


def conditions(found: Mapping[str, Any]) -> dict[str, str]:
    """Status of each condition by type."""
    return {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", [])}


def topology(name: str, namespace: str, claim: str) -> dict[str, Any]:
    """Two queries on two nodes; it runs for minutes and needs a tenth of a core."""
    source = {
        "name": "tweets",
        "class": "reprise.sources:HashtagSource",
        "with": {"rate": 10, "batches": 2000},
    }
    count = {
        "name": "count",
        "class": "reprise.operators:KeyedCount",
        "parallelism": 2,
        "with": {"keys": ["tweet"]},
        "inputs": [{"from": "tweets", "by": ["tweet"]}],
        "output": {"priority": 1},
    }
    spec: dict[str, Any] = {"sources": [source], "operators": [count], "nodes": {"count": 2, "cpu": "50m"}}
    if claim:
        spec["kubernetes"] = {"volumes": [{"claim": claim, "mountPath": MOUNT}]}
        spec["checkpoint"] = {"location": f"{MOUNT}/{name}/checkpoints"}
        spec["sink"] = {"location": f"{MOUNT}/{name}/sink"}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "StreamTopology",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _remove(
    api: Api, path: str, deadline: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """What an earlier test has left."""
    api.delete(path)
    while clock() < deadline:
        try:
            api.get(path)
        except NotFoundError:
            return
        except UnknownError:
            pass
        sleep(POLL_S)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reprise.controller.image prove", description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--name", required=True, help="of the topology that is made and removed")
    parser.add_argument("--until", choices=("accepted", "ready"), default="accepted")
    parser.add_argument("--claim", default="", help="PersistentVolumeClaim that all pods can write")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
