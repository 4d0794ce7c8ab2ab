"""The summary of `make mutants`."""

from __future__ import annotations

import json
from pathlib import Path

from tools.mutants import modules, table


def test_survivors_are_those_without_a_failing_test_and_those_without_a_test(tmp_path: Path) -> None:
    codes = {"killed": 1, "survived": 0, "untested": 33, "not collected": 5, "timeout": 36, "not run": None}
    for name, found in {"scheduler/a": codes, "scheduler/none": {}}.items():
        meta = tmp_path / f"{name}.py.meta"
        meta.parent.mkdir(exist_ok=True)
        meta.write_text(json.dumps({"exit_code_by_key": found}))
    (module,) = modules(tmp_path)
    assert (module.path, module.run) == ("scheduler/a.py", 5)
    assert module.survivors == ["survived", "untested", "not collected"]
    assert table([module]).splitlines()[-1] == "| scheduler/a.py | 6 | 5 | 2 (40%) | 3 |"
