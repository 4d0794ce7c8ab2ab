"""`python -m reprise.controller.image {operator|driver|executor|zookeeper|prove} ...`: the one entrypoint of the image.

One image for all pods of a topology, so that driver, executors and operator are of one version; Spark calls it with the
argument `executor`, the operator with `driver`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from reprise.controller.agent import user_code
from reprise.controller.errors import StartError

LAST_WORD = Path("/dev/termination-log")
"""Kubernetes keeps what a container has written there: Spark removes executors that end, and their logs with them."""


def _refuse(reason: str) -> None:
    print(reason, file=sys.stderr)
    if LAST_WORD.exists():
        with contextlib.suppress(OSError):
            LAST_WORD.write_text(reason, encoding="utf-8")


def main() -> int:
    """Hands over to the process that was asked for."""
    role = sys.argv[1] if len(sys.argv) > 1 else ""
    if role in ("driver", "executor"):
        try:
            user_code.take(os.environ)
        except StartError as error:
            _refuse(f"refused: {error}")
            return 1
    if role == "executor":
        from reprise.controller.agent.pod_agent import main as executor

        executor(os.environ)
        return 0
    modules = {
        "operator": "reprise.controller.operator",
        "driver": "reprise.controller.driver",
        "zookeeper": "reprise.controller.image.zookeeper",
        "prove": "reprise.controller.image.helm_test",
    }
    if role not in modules:
        print(
            f"usage: python -m reprise.controller.image {{{'|'.join([*modules, 'executor'])}}} ...",
            file=sys.stderr,
        )
        return 2
    command = [sys.executable, "-m", modules[role], *sys.argv[2:]]
    os.execv(sys.executable, command)
    return 1  # not reached: this process is that program now


if __name__ == "__main__":
    sys.exit(main())
