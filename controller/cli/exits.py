"""Exit codes, and the one gate through which every error leaves.

Invariant: a mistake of the caller never shows a traceback; an error nobody foresaw always does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NoReturn, TypeVar

import click

T = TypeVar("T")

DONE = 0
NO = 1
"""The command worked and its answer is no: the run failed, outputs differ, a checkpoint is damaged."""
BAD_INPUT = 2
TIMED_OUT = 3
NOT_RUNNING = 4
"""Nothing runs there, or what was asked does not answer: ZooKeeper, the API server, the controller's page."""
INTERRUPTED = 130


class NotRunningError(Exception):
    """There is no running topology to ask."""


def guarded(call: Callable[[], T]) -> T:
    """The result of `call`; foreseen errors become one line and an exit code."""
    from reprise.algorithms import PlanningError
    from reprise.controller.errors import EmbeddedError, ReportError, RunError
    from reprise.controller.kubernetes.errors import OperatorError
    from reprise.controller.local.errors import FaultFileError, OutDirError
    from reprise.controller.observability.metrics.errors import MetricsError
    from reprise.controller.zookeeper.errors import CoordinationError
    from reprise.spark_jobs.errors import DataPlaneError

    try:
        return call()
    except (NotRunningError, OperatorError) as error:
        fail(str(error), NOT_RUNNING)
    except (DataPlaneError, PlanningError, FaultFileError, OutDirError, ReportError, MetricsError) as error:
        fail(str(error), BAD_INPUT)
    except (RunError, EmbeddedError, CoordinationError) as error:
        fail(str(error), NO)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fail(f"{error.filename or 'the disk'}: {error.strerror}", NO)
        if error.filename is None:
            raise
        fail(f"{error.filename}: {error.strerror}", BAD_INPUT)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)


def fail(message: str, code: int) -> NoReturn:
    """One line on standard error."""
    click.echo(f"error: {' '.join(message.split())}", err=True)
    raise SystemExit(code)
