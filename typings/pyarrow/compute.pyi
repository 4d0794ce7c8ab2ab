"""Functions over arrays, chunked arrays and scalars; what they give is of the shape of what they are given."""

from typing import Any

def add(x: Any, y: Any, /, *, memory_pool: Any = ...) -> Any: ...
def if_else(cond: Any, left: Any, right: Any, /, *, memory_pool: Any = ...) -> Any: ...
def fill_null(values: Any, fill_value: Any) -> Any: ...
def binary_join_element_wise(
    *strings: Any,
    null_handling: str = ...,
    null_replacement: str = ...,
    options: Any = ...,
    memory_pool: Any = ...,
) -> Any: ...
