from typing import NamedTuple

class KazooState:
    SUSPENDED: str
    CONNECTED: str
    LOST: str

class WatchedEvent(NamedTuple):
    type: str
    state: str
    path: str

class _Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeralOwner: int
    dataLength: int
    numChildren: int
    pzxid: int

class ZnodeStat(_Stat):
    @property
    def created(self) -> float: ...
    @property
    def last_modified(self) -> float: ...
