"""`reprise demo flights` on real nodes: eight of ten are killed, and the demo's own verdict passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reprise.controller.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def test_the_demo_passes(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    result = CliRunner().invoke(main, ["demo", "flights", "--no-web", "-q", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "PASSED" in result.output
    assert (out / "queries.png").stat().st_size > 10_000
