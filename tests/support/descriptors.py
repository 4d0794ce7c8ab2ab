"""Types of Protobuf for tests, as `protoc` would describe them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "int64": _FIELD.TYPE_INT64, "int32": _FIELD.TYPE_INT32, "string": _FIELD.TYPE_STRING, "double": _FIELD.TYPE_DOUBLE,
    "bytes": _FIELD.TYPE_BYTES, "bool": _FIELD.TYPE_BOOL, "float": _FIELD.TYPE_FLOAT, "uint32": _FIELD.TYPE_UINT32,
}  # fmt: skip


def _fields(message: Any, fields: dict[str, str]) -> None:
    for number, (name, kind) in enumerate(fields.items(), 1):
        field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
        word, *more = kind.split()
        if word == "repeated":
            field.label, (word, *more) = _FIELD.LABEL_REPEATED, more
        if word == "optional":  # presence of its own, as proto3 writes it
            message.oneof_decl.add(name=f"_{name}")
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl) - 1
            word, *more = more
        if word == "oneof":
            field.oneof_index = 0
            word, *more = more
        if word in _KINDS:
            field.type = _KINDS[word]
        else:
            field.type = _FIELD.TYPE_ENUM if word == ".shop.Colour" else _FIELD.TYPE_MESSAGE
            field.type_name = word


def _row() -> Any:
    """`shop.proto`: Row with a nested Place, Other, and Colour."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("NONE", "RED")):
        colour.value.add(name=name, number=number)
    row = file.message_type.add(name="Row")
    row.oneof_decl.add(name="reach")
    fields = {
        "id": "int64", "name": "string", "share": "double", "note": "optional string", "colour": ".shop.Colour",
        "at": ".google.protobuf.Timestamp", "most": ".google.protobuf.Int64Value", "code": "int32", "raw": "bytes",
        "good": "bool", "tags": "repeated string", "where": ".shop.Row.Place", "time": "int64",
        "mail": "oneof string", "phone": "oneof .google.protobuf.Int64Value", "single": "float", "few": "uint32",
    }  # fmt: skip
    _fields(row, fields)
    _fields(row.nested_type.add(name="Place"), {"city": "string"})
    _fields(file.message_type.add(name="Other"), {"id": "int64", "row": ".shop.Row"})
    return file


ROW = _row()


def text_of(file: Any) -> str:
    """As a registry gives it with `?format=serialized`."""
    return base64.b64encode(file.SerializeToString()).decode()


def descriptor_file(path: Path) -> Path:
    """What `protoc --include_imports --descriptor_set_out=PATH shop.proto` writes."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.add().CopyFrom(ROW)
    path.write_bytes(files.SerializeToString())
    return path
