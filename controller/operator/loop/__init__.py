"""When a topology is looked at, by which thread, and in which order of many: the loop of each topology and its limits.

Law: it starts what `pods`, `status` and `records` do and knows none of their details; nobody but the process knows it.
"""
