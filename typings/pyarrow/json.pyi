from typing import Any

from pyarrow.lib import Schema, Table

class ReadOptions:
    def __init__(self, use_threads: bool | None = ..., block_size: int | None = ...) -> None: ...

class ParseOptions:
    def __init__(
        self,
        explicit_schema: Schema | None = ...,
        newlines_in_values: bool | None = ...,
        unexpected_field_behavior: str | None = ...,
    ) -> None: ...

def read_json(
    input_file: Any,
    read_options: ReadOptions | None = ...,
    parse_options: ParseOptions | None = ...,
    memory_pool: Any = ...,
) -> Table: ...
