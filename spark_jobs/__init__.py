"""The data plane: topologies, their sources, operators and sinks, and how batches get through them, with checkpoints.

The law of this package: it carries out what is desired and decides nothing about recovery.  It knows no ZooKeeper and no
Kubernetes, and neither `scheduler` nor `controller`.
"""
