from typing import Any

from pyarrow.lib import Table

class ReadOptions:
    def __init__(self, *, block_size: int | None = ...) -> None: ...

class ParseOptions:
    def __init__(
        self, *, newlines_in_values: bool | None = ..., ignore_empty_lines: bool | None = ...
    ) -> None: ...

class ConvertOptions:
    def __init__(self, *, column_types: Any = ...) -> None: ...

def read_csv(
    input_file: Any,
    read_options: Any = ...,
    parse_options: Any = ...,
    convert_options: Any = ...,
    memory_pool: Any = ...,
) -> Table: ...
