"""The coordinator process and the records through which coordinator, driver and nodes talk.

`records` reads and writes what the znodes hold, `store` reads a snapshot and commits a decision, `coordinator`
is the loop. What is decided, and why, is in the package `scheduler`.
"""
