from pyarrow.parquet.core import read_schema as read_schema
from pyarrow.parquet.core import read_table as read_table
from pyarrow.parquet.core import write_table as write_table
