"""The kernels, compiled by numba once that is ready and interpreted until then, with the same answers.

A coordinator fails over just when a plan is needed, and its first plan must not wait for a compiler. So
whoever serves calls `load_in_background` as it starts; until that is done plans are made with interpreted
kernels, which search less in the same time. `load` waits instead: command line, benchmarks, and the first use
where nobody has asked for the background.

What is compiled stays on disk, in `__pycache__` beside the kernels, else in the user's cache or where
NUMBA_CACHE_DIR says; `python -m reprise.algorithms` fills it (an image build does well to run it, on
processors like those that it will run on). With no place to write to, each process compiles for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar

from reprise.algorithms.kernels import bins, density, swaps

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A function of a kernel module, in the fastest form that there is at the time of the call."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.compiled: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return (self.compiled or self.function)(*args, **kwargs)


place = Kernel(bins.place)
advance = Kernel(density.advance)
begin = Kernel(swaps.begin)
fill = Kernel(swaps.fill)
load_choice = Kernel(swaps.load)
most_worth = Kernel(swaps.most_worth)
least_price = Kernel(swaps.least_price)

_PUBLISHED: dict[ModuleType, tuple[Kernel[..., Any], ...]] = {
    bins: (place,),
    density: (advance,),
    swaps: (begin, fill, load_choice, most_worth, least_price),
}


class _Loading:
    """One attempt a process: a compiler that failed once fails again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.done = False
        self.failure = ""


_loading = _Loading()


def load() -> bool:
    """Compile, or read from the cache, and wait for it; whether kernels are compiled now."""
    with _loading.lock:
        if not _loading.done:
            try:
                for module in _PUBLISHED:
                    _publish(module)
            except Exception as error:  # whatever keeps a compiler from working, plans are made without it
                _loading.failure = f"{type(error).__name__}: {error}"
            _loading.done = True
    return not _loading.failure


def load_in_background() -> threading.Thread:
    """`load` in a thread that does not keep the process alive."""
    if _loading.thread is None:
        _loading.thread = threading.Thread(target=load, name="compile-kernels", daemon=True)
        _loading.thread.start()
    return _loading.thread


def ready(wait: bool) -> bool:
    """Whether kernels are compiled. They are loaded now if nobody asked for it yet; a load under way in the
    background is waited for only with `wait`."""
    if _loading.thread is not None and not _loading.done and not wait:
        return False
    return load()


def failure() -> str:
    """Why kernels stay interpreted; empty where they do not."""
    return _loading.failure


def _publish(module: ModuleType) -> None:
    """All of a module is compiled and run once before the first call can see any of it."""
    built = compile_module(module)
    module.rehearse(built)
    for kernel in _PUBLISHED[module]:
        kernel.compiled = built[kernel.function.__name__]


def compile_module(module: ModuleType) -> dict[str, Callable[..., object]]:
    """The functions that the module names in COMPILED, bound to each other and not to the interpreted ones; those in
    INLINED become part of those that call them."""
    names: dict[str, Callable[..., object]] = dict(vars(module))
    for name in module.COMPILED:
        plain = names[name]
        assert isinstance(plain, FunctionType)
        names[name] = _jit(
            FunctionType(plain.__code__, names, name, plain.__defaults__), name in module.INLINED
        )
    return {name: names[name] for name in module.COMPILED}


def _jit(function: FunctionType, inlined: bool) -> Callable[..., object]:
    import numba  # here, because it takes a good part of a second

    options: dict[str, Any] = {"error_model": "numpy", "inline": "always" if inlined else "never"}
    try:
        compiled: Callable[..., object] = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no directory for the cache that can be written to
        compiled = numba.njit(**options)(function)
    return compiled
