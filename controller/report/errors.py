"""What can go wrong with the files of a run; every error that leaves this package is a `ReportError`."""


class ReportError(Exception):
    """A file of a run that cannot be read or written; the message names it."""


class OutDirError(ReportError):
    """A folder that cannot take the results of a run."""
