from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_T_co = TypeVar("_T_co", covariant=True)

class IAsyncResult(Protocol[_T_co]):
    """What `reprise.controller.zookeeper.results.Result` stands in for."""

    def get(self, block: bool = ..., timeout: float | None = ...) -> _T_co: ...
    def rawlink(self, callback: Callable[[Any], object]) -> None: ...
