"""What stands in ZooKeeper, and how it is read and written: the protocol of agents, coordinator, driver and operator.

The records (`records`, `recovery_records`, `process_records`, `node_record`, `membership`), one session with ZooKeeper's
verbs and own errors (`session`, made by `client`), one reader of a whole topology (`observer`, which makes an
`observation`).  kazoo is known to nobody else.  The law of this package: it knows nothing of Kubernetes, of Spark and of
who shows what it reads.
"""
