"""Loading kernels: nobody waits who must not, and a compiler that does not work costs speed alone."""

from __future__ import annotations

import random
import threading
import types

import pytest

from reprise.algorithms import compiled, solve
from reprise.algorithms.generators import sukp


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just started."""
    monkeypatch.setattr(compiled, "_loading", compiled._Loading())
    for kernels in compiled._PUBLISHED.values():
        for kernel in kernels:
            monkeypatch.setattr(kernel, "compiled", None)


@pytest.mark.usefixtures("unloaded")
def test_a_plan_is_made_while_kernels_are_compiled_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(compiled, "_publish", lambda module: go.wait(60))
    thread = compiled.load_in_background()
    assert not compiled.ready(wait=False)
    ticks = iter(range(10**9))
    plan = solve(sukp(random.Random(1), 30, 30, 0.1, 0.75), "local-search", 20.0, lambda: float(next(ticks)))
    assert plan.value > 0
    assert "interpreted" in plan.why
    go.set()
    thread.join(300)
    assert compiled.ready(wait=False)


@pytest.mark.wide
@pytest.mark.usefixtures("unloaded")
def test_without_a_compiler_the_plan_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(function: object, inlined: bool) -> None:
        raise ImportError("no compiler")

    monkeypatch.setattr(compiled, "_jit", missing)
    assert not compiled.load()
    assert "no compiler" in compiled.failure()
    instance = sukp(random.Random(1), 12, 10, 0.15, 0.75)
    slow = solve(instance, "local-search", 0.004)
    monkeypatch.undo()
    fast = solve(instance, "local-search", 0.004)
    assert slow.queries == fast.queries


def test_where_no_cache_can_be_written_kernels_are_compiled_without(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    compiled.ready(wait=True)  # or what another test has begun to compile would be counted here
    asked: list[dict[str, object]] = []
    real = numba.njit

    def njit(*args: object, **options: object) -> object:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*args, **options)

    monkeypatch.setattr(numba, "njit", njit)
    module = types.ModuleType("sample")
    exec("def half(x):\n    return x // 2\ndef quarter(x):\n    return half(half(x))\n", vars(module))
    module.COMPILED = ("half", "quarter")  # type: ignore[attr-defined]
    module.INLINED = ("half",)  # type: ignore[attr-defined]
    assert compiled.compile_module(module)["quarter"](9) == 2
    assert [options.get("cache", False) for options in asked] == [True, False, True, False]
