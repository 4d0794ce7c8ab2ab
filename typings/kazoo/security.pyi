from typing import NamedTuple

class Permissions:
    READ: int
    WRITE: int
    CREATE: int
    DELETE: int
    ADMIN: int
    ALL: int

class Id(NamedTuple):
    scheme: str
    id: str

class _Acl(NamedTuple):
    perms: int
    id: Id

class ACL(_Acl):
    @property
    def acl_list(self) -> list[str]: ...

OPEN_ACL_UNSAFE: list[ACL]
CREATOR_ALL_ACL: list[ACL]
READ_ACL_UNSAFE: list[ACL]

def make_digest_acl_credential(username: str, password: str) -> str: ...
def make_acl(
    scheme: str,
    credential: str,
    read: bool = ...,
    write: bool = ...,
    create: bool = ...,
    delete: bool = ...,
    admin: bool = ...,
    all: bool = ...,
) -> ACL: ...
