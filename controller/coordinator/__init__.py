"""The coordinator process: reads a snapshot, asks the scheduler, commits the decision in one transaction.

`store` reads a snapshot and commits a decision, `coordinator` is the loop.  What is decided, and why, is in
`reprise.scheduler`; what the records are is in `reprise.controller.zookeeper`.
"""
