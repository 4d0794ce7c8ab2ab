"""Arrow tables as frames of polars that have the same values and names."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa


def frame_of(table: pa.Table) -> pl.DataFrame:
    """A frame over the same rows.  It raises what polars raises: panics, too."""
    if any("fixed_size_list" in str(kind) for kind in table.schema.types):
        # Of a slice polars reads the nulls of other rows.
        table = table.take(pa.array(np.arange(table.num_rows)))
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.columns = table.column_names  # polars renames a column whose name is empty
    return frame
