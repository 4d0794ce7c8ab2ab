"""The words of which a field of a topology holds one: the same for what people write and for what the program compares.

They are literals, so that a comparison with a word that the field cannot hold is found by the type checker.
"""

from __future__ import annotations

from typing import Literal

Protocol = Literal["coordinated", "uncoordinated", "communication-induced", "eventual"]
"""`checkpoint.protocol`"""
OutputLog = Literal["none", "memory", "checkpointed"]
"""`checkpoint.log`"""
StateForm = Literal["arrays", "paged"]
"""`checkpoint.state`"""
Strategy = Literal["incremental", "blocking", "operator-centric", "best-case"]
"""`recovery.strategy`"""
Scope = Literal["global", "ancestors", "partition", "auto"]
"""`recovery.scope`"""
QueryOrder = Literal["value", "strict"]
"""`recovery.order`"""
BatchOrder = Literal["aligned", "arrival"]
"""`batch.order`"""
Upgrade = Literal["drain", "replay"]
"""`upgrade`"""
Format = Literal["jsonl", "parquet"]
"""`output.format`"""
