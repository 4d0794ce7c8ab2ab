"""What can go wrong with a run on this machine and with its files."""

from __future__ import annotations

from collections.abc import Iterable

from reprise.controller.errors import ReportError, RunError


class OutDirError(ReportError):
    """A folder that cannot take the results of a run."""


class FaultFileError(RunError):
    """A fault or trace file that does not say what to do: file, field (as a path) and reason.  `others` are the further
    mistakes that were found with it."""

    def __init__(self, file: str, field: str, reason: str, others: Iterable[FaultFileError] = ()) -> None:
        self.file = file
        self.field = field
        self.reason = reason
        self.others = tuple(others)
        text = f"{file}: {field}: {reason}" if field else f"{file}: {reason}"
        super().__init__(text + (f" (and {len(self.others)} more)" if self.others else ""))

    @property
    def all(self) -> tuple[FaultFileError, ...]:
        """This mistake and the others, each alone."""
        return (FaultFileError(self.file, self.field, self.reason), *self.others)

    def at(self, line: int | None) -> FaultFileError:
        """The same mistake with the line of the file, where it is known."""
        return self if line is None else FaultFileError(self.file, self.field, f"{self.reason} (line {line})")


class ServiceError(RunError):
    """Driver or coordinator end again and again; the message carries the end of the log."""
