from typing import Any

from pyarrow.lib import Schema, Table

class CSVStreamingReader:
    @property
    def schema(self) -> Schema: ...
    def __enter__(self) -> CSVStreamingReader: ...
    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None: ...

def open_csv(
    input_file: Any,
    read_options: Any = ...,
    parse_options: Any = ...,
    convert_options: Any = ...,
    memory_pool: Any = ...,
) -> CSVStreamingReader: ...
def read_csv(
    input_file: Any,
    read_options: Any = ...,
    parse_options: Any = ...,
    convert_options: Any = ...,
    memory_pool: Any = ...,
) -> Table: ...
