"""Functions over arrays, chunked arrays and scalars; what they give is of the shape of what they are given."""

from typing import Any

def add(x: Any, y: Any, /, *, memory_pool: Any = ...) -> Any: ...
def sort_indices(input: Any, /, sort_keys: Any = ..., *, null_placement: Any = ...) -> Any: ...
def if_else(cond: Any, left: Any, right: Any, /, *, memory_pool: Any = ...) -> Any: ...
def fill_null(values: Any, fill_value: Any) -> Any: ...
def equal(x: Any, y: Any, /, *, memory_pool: Any = ...) -> Any: ...
def greater(x: Any, y: Any, /, *, memory_pool: Any = ...) -> Any: ...
def invert(values: Any, /, *, memory_pool: Any = ...) -> Any: ...
def is_nan(values: Any, /, *, memory_pool: Any = ...) -> Any: ...
def is_in(
    values: Any,
    /,
    value_set: Any,
    *,
    skip_nulls: bool = ...,
    options: Any = ...,
    memory_pool: Any = ...,
) -> Any: ...
def all(
    array: Any,
    /,
    *,
    skip_nulls: bool = ...,
    min_count: int = ...,
    options: Any = ...,
    memory_pool: Any = ...,
) -> Any: ...
def any(
    array: Any,
    /,
    *,
    skip_nulls: bool = ...,
    min_count: int = ...,
    options: Any = ...,
    memory_pool: Any = ...,
) -> Any: ...
def and_not(x: Any, y: Any, /, *, memory_pool: Any = ...) -> Any: ...
def or_(x: Any, y: Any, /, *, memory_pool: Any = ...) -> Any: ...
def is_inf(values: Any, /, *, memory_pool: Any = ...) -> Any: ...
def list_flatten(lists: Any, /, recursive: bool = ..., *, memory_pool: Any = ...) -> Any: ...
def coalesce(*values: Any, memory_pool: Any = ...) -> Any: ...
def utf8_length(strings: Any, /, *, memory_pool: Any = ...) -> Any: ...
def utf8_trim_whitespace(strings: Any, /, *, memory_pool: Any = ...) -> Any: ...
def match_substring_regex(
    strings: Any,
    /,
    pattern: str,
    *,
    ignore_case: bool = ...,
    options: Any = ...,
    memory_pool: Any = ...,
) -> Any: ...
def replace_substring_regex(
    strings: Any,
    /,
    pattern: str,
    replacement: str,
    *,
    max_replacements: int | None = ...,
    options: Any = ...,
    memory_pool: Any = ...,
) -> Any: ...
def binary_join_element_wise(
    *strings: Any,
    null_handling: str = ...,
    null_replacement: str = ...,
    options: Any = ...,
    memory_pool: Any = ...,
) -> Any: ...
