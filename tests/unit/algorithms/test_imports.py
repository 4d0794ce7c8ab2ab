"""Who needs the model alone does not wait for the solver: a partition host starts in the middle of a recovery."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from reprise import algorithms

HEAVY = {"numba", "pulp", "highspy"}


def imported_by(statement: str) -> set[str]:
    """Modules that an interpreter of its own has after `statement`."""
    program = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_model_comes_without_the_planners() -> None:
    found = imported_by(
        "from reprise.algorithms import UnionSet, FailedQuery, loads_instance, plan_from_json"
    )
    assert "reprise.algorithms.union_set" in found
    assert not found & {"numpy", "reprise.algorithms.registry", "reprise.algorithms.compiled", *HEAVY}


def test_a_partition_host_starts_without_the_planners() -> None:
    found = imported_by("import reprise.spark_jobs.node.host_process")
    assert "reprise.spark_jobs.topology.graph" in found
    assert not found & {"reprise.algorithms.registry", "reprise.algorithms.compiled", *HEAVY}


# Each name is imported in a process of its own, forked where the interpreter has the state that matters.
_ONE_BY_ONE = """
import os, sys
import reprise.algorithms.registry, reprise.algorithms.strict
for name in sys.argv[1:]:
    if os.fork() == 0:
        exec(f"from reprise.algorithms import {name}")
        os._exit(type(locals()[name]).__name__ == "module")
    print(name, os.wait()[1])
"""


def test_every_public_name_is_there_in_whatever_order_it_is_asked_for() -> None:
    """In an interpreter of its own: a submodule of the same name would take the place of a function."""
    command = [sys.executable, "-c", _ONE_BY_ONE, *algorithms.__all__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} 0" for name in algorithms.__all__], done.stderr


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'solved'"):
        algorithms.solved  # type: ignore[attr-defined]  # noqa: B018
