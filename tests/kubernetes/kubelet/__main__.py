"""`python -m tests.kubernetes.kubelet --node n1 --kubeconfig FILE --images FILE --root DIR`.

The process makes itself the outermost of a PID and mount namespace: whatever ends it ends all that runs on the node.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from pathlib import Path

from reprise.controller.local.cluster import addresses
from tests.kubernetes.kubelet.images import Images
from tests.kubernetes.kubelet.node import Node
from tools.testbed.rest import Rest

HIDDEN = ("/opt/spark", "/var/data", "/run/secrets", "/etc/reprise", "/var/lib/reprise")
"""Where pods mount things: empty on the node, so that the host keeps nothing but empty folders."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.kubelet", description=__doc__)
    parser.add_argument("--node", required=True)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--images", required=True, type=Path)
    parser.add_argument("--root", required=True, type=Path, help="folder of the pods' volumes and logs")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--cpu", default="4")
    parser.add_argument("--memory", default="8Gi")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        within = [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--propagation",
            "private",
            "--mount-proc",
        ]
        module = [sys.executable, "-m", "tests.kubernetes.kubelet"]
        os.execvp("unshare", [*within, *module, "--inside", *sys.argv[1:]])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for folder in HIDDEN:
        Path(folder).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    prefix, claim = addresses.claim_prefix()
    os.set_inheritable(claim.fileno(), False)
    api = Rest.of(options.kubeconfig)
    capacity = {"cpu": options.cpu, "memory": options.memory}
    labels = dict(label.split("=", 1) for label in options.label)
    images = Images.read(options.images)
    Node(api, options.node, prefix, images, options.root.resolve() / options.node, capacity, labels).run()


if __name__ == "__main__":
    main()
