from pyarrow import ipc as ipc
from pyarrow import types as types
from pyarrow.lib import *  # noqa: F403 - as the package does
