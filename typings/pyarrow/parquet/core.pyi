from typing import Any

from pyarrow.lib import Schema, Table

def read_schema(where: Any, memory_map: bool = ...) -> Schema: ...
def read_table(
    source: Any,
    *,
    columns: list[str] | None = ...,
    use_threads: bool = ...,
    coerce_int96_timestamp_unit: str | None = ...,
) -> Table: ...
def write_table(
    table: Table,
    where: Any,
    row_group_size: int | None = ...,
    version: str = ...,
    use_dictionary: bool = ...,
    compression: str = ...,
    **kwargs: Any,
) -> None: ...
