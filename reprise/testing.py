"""How own operators and topologies are tried without a cluster; docs/operators.md shows how.

These names are promised to stay (docs/stability.md).
"""

from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.operators.testing import check_kind, check_recovery, inbox, run
from reprise.spark_jobs.topology import StreamTopology, load_topology

__all__ = ["StreamTopology", "check_kind", "check_recovery", "inbox", "load_topology", "run", "run_local"]
