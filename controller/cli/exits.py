"""Exit codes, and the one gate through which every error leaves.

Invariant: a mistake of the caller never shows a traceback; an error nobody foresaw always does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NoReturn, TypeVar

import click
from click.exceptions import NoArgsIsHelpError

T = TypeVar("T")

DONE = 0
NO = 1
"""The command worked and its answer is no: the run failed, outputs differ, a checkpoint is damaged."""
BAD_INPUT = 2
TIMED_OUT = 3
MARKED = 5
"""Outputs differ in batches alone that are marked as lacking rows."""
NOT_RUNNING = 4
"""Nothing runs there, or what was asked does not answer: ZooKeeper, the API server, the controller's page."""
INTERRUPTED = 130
SHOWN = 100
"""Mistakes of one input that are listed."""


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
    from reprise.spark_jobs.errors import DataPlaneError, SpecError

    try:
        return call()
    except click.ClickException as error:
        if isinstance(error, NoArgsIsHelpError):
            raise
        fail(_of_usage(error), BAD_INPUT)
    except SpecError as error:
        several([str(mistake) for mistake in error.all])
    except FaultFileError as error:
        several([str(mistake) for mistake in error.all])
    except (NotRunningError, OperatorError) as error:
        fail(str(error), NOT_RUNNING)
    except (DataPlaneError, PlanningError, OutDirError, ReportError, MetricsError) as error:
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


def several(mistakes: list[str]) -> NoReturn:
    """The mistakes of an input, all at once: a line each below one that counts them, or one line where there is one."""
    if len(mistakes) == 1:
        fail(mistakes[0], BAD_INPUT)
    click.echo(f"error: {len(mistakes)} mistakes were found", err=True)
    for mistake in mistakes[:SHOWN]:
        click.echo(f"  {' '.join(mistake.split())}", err=True)
    if len(mistakes) > SHOWN:
        click.echo(f"  and {len(mistakes) - SHOWN} more", err=True)
    raise SystemExit(BAD_INPUT)


def _of_usage(error: click.ClickException) -> str:
    """What click found wrong with the words of a call, in the style of all errors, and where help is."""
    text = error.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    return text if context is None else f"{text} (see `{context.command_path} --help`)"
