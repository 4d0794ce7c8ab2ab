"""What can go wrong with metrics."""

from __future__ import annotations


class MetricsError(Exception):
    """Base of this package's errors."""


class CatalogueError(MetricsError):
    """A value of a metric or label that the catalogue does not know: a mistake in the program."""


class ServeError(MetricsError):
    """The endpoint cannot be opened; names address and port."""
