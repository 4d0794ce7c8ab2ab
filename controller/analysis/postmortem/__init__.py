"""The post-mortem of one incident: what happened, what it cost, and what would have been otherwise.

The law of this package: every number comes from the records of the incident, or from the planners run on them, and what was
assumed stands beside it.  Nothing here writes files.
"""
