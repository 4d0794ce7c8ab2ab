"""What stands in ZooKeeper, and how it is read and written: the protocol of agents, coordinator, driver and operator.

One module for each kind of record, one client (`client`), one reader of a whole topology (`observer`, which makes an
`observation`).  The law of this package: it knows nothing of Kubernetes, of Spark and of who shows what it reads.
"""
