"""What tests of the engine leave behind: no threads of hosts that they have lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.testbed.local_engine import close_hosts


@pytest.fixture(autouse=True)
def hosts_are_closed() -> Iterator[None]:
    """A run of all seeds starts some ten thousand hosts in one process."""
    yield
    close_hosts()
