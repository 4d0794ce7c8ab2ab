"""Protobuf messages as rows, by the descriptors of their types: no code is generated, and none of a schema is run.

A type comes from a registry, which gives it as a serialized descriptor, or from a file that `protoc --include_imports
--descriptor_set_out=FILE` has written.  A column is the field of its name: a single value, an enumeration (its name, or its
number in a column of integers), a wrapper such as `google.protobuf.Int64Value`, or a `google.protobuf.Timestamp`.  A field
that has presence and is not set is null, and so is one that the type does not have.

Imported where the format is asked for, as its package is one of an extra.
"""

from __future__ import annotations

import base64
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError as NotProtobufError
from google.protobuf.message import Message

from reprise.spark_jobs.errors import DecodeError, EncodeError, SourceError, SpecError
from reprise.spark_jobs.kafka.decode import Counts, Decoder
from reprise.spark_jobs.kafka.encode import Encoder
from reprise.spark_jobs.kafka.registry import Fetch, Found, head
from reprise.spark_jobs.topology.scalars import nearest

SERIALIZED = "serialized"
"""The form in which a registry is asked for a schema: the base64 text of its FileDescriptorProto."""
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_PROTOBUF = "google/protobuf/"
_SHIPPED = {
    _PROTOBUF: "google.protobuf.",
    "google/type/": "google.type.",
    "confluent/": "confluent_kafka.schema_registry.confluent.",
}
"""Where types are that registries do not hold, by the folder of their files."""
_SHIPPED_FILE = re.compile(r"[a-z/]*/[a-z][a-z0-9_]*\.proto")
_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_MOST_INDICES = 100
_MOST_IMPORTS = 100
_SCHEMA = "(schema)"
"""The file of a schema itself, whose own name a registry does not say."""
_NUMBER = re.compile("-?[0-9]+")
Type = type[Message]


def _is_text(column: pa.DataType) -> bool:
    return any(
        is_one(column) for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _is_bytes(column: pa.DataType) -> bool:
    return any(
        is_one(column) for is_one in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    )


def _is_whole(column: pa.DataType) -> bool:
    return bool(pa.types.is_integer(column) or pa.types.is_timestamp(column))


_COLUMNS: Mapping[int, Callable[[pa.DataType], bool]] = {
    FieldDescriptor.TYPE_DOUBLE: pa.types.is_floating,
    FieldDescriptor.TYPE_FLOAT: pa.types.is_floating,
    FieldDescriptor.TYPE_BOOL: pa.types.is_boolean,
    FieldDescriptor.TYPE_STRING: _is_text,
    FieldDescriptor.TYPE_BYTES: _is_bytes,
    FieldDescriptor.TYPE_ENUM: lambda column: pa.types.is_integer(column) or _is_text(column),
}
"""What columns a field may have, by its type; those of all others are whole numbers.  Protobuf and Arrow would change values
of other pairs without a word: 1.5 to 1, 5 to true."""
_BITS = {FieldDescriptor.TYPE_FLOAT: 32, FieldDescriptor.TYPE_DOUBLE: 64}


class Protobuf(Decoder):
    """One message a value, of the type that `type_of` finds; it also says where the message begins."""

    def __init__(self, schema: pa.Schema, type_of: Callable[[bytes], tuple[Type, int]]) -> None:
        self._schema, self._type_of = schema, type_of
        self._getters: dict[Type, list[Callable[[Any], Any]]] = {}

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        rows = []
        for value in values:
            kind, begin = self._type_of(value)
            getters = self._getters.get(kind)
            if getters is None:
                getters = self._getters[kind] = [_getter(kind.DESCRIPTOR, field) for field in self._schema]
            message = kind()
            try:
                message.ParseFromString(value[begin:])
            except NotProtobufError as error:
                raise DecodeError(f"not a message of type {kind.DESCRIPTOR.full_name}: {error}") from None
            rows.append([get(message) for get in getters])
        columns = zip(*rows, strict=True) if rows else ([] for _ in self._schema)
        try:
            arrays = [pa.array(list(c), f.type) for c, f in zip(columns, self._schema, strict=True)]
        except (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError) as error:
            raise DecodeError(f"the message does not fit the columns: {error}") from None
        return pa.Table.from_arrays(arrays, schema=self._schema), np.ones(len(values), np.int64)


def _getter(kind: Descriptor, column: pa.Field) -> Callable[[Any], Any]:
    """Takes the value of a column out of a message.  DecodeError where the column cannot hold what the field does."""
    name = column.name
    field = kind.fields_by_name.get(name)
    if field is None:
        return lambda _message: None
    if reason := _misfit(field, column.type, reads=True):
        raise DecodeError(reason)
    value = _value(field, column)
    return (
        (lambda message: value(message) if message.HasField(name) else None) if field.has_presence else value
    )


def _value(field: FieldDescriptor, column: pa.Field) -> Callable[[Any], Any]:
    """Takes the value of a field that is set."""
    name = column.name
    if field.enum_type is not None and not pa.types.is_integer(column.type):
        names = {number: item.name for number, item in field.enum_type.values_by_number.items()}
        return lambda message: names.get(number := getattr(message, name), str(number))
    if field.message_type is None:
        return attrgetter(name)
    if field.message_type.full_name != TIMESTAMP:
        return attrgetter(f"{name}.value")
    digits = _UNITS[column.type.unit]
    return lambda message: _moment(getattr(message, name), digits)


def _misfit(field: FieldDescriptor, column: pa.DataType, *, reads: bool) -> str:
    """Why a value of the field may not become one of a column of this type, or the other way round; empty where it may."""
    of = f"field {field.name!r} of {field.containing_type.full_name}"
    message = field.message_type
    if field.is_repeated or not (message is None or message.full_name in {TIMESTAMP, *WRAPPERS}):
        return f"{of} is no single value, as a column is"
    if pa.types.is_dictionary(column):
        column = column.value_type
    if message is not None and message.full_name == TIMESTAMP:
        of_moments = pa.types.is_timestamp(column)
        return "" if of_moments else f"{of} is a Timestamp; the column is {column}, not timestamp[us]"
    held = (field if message is None else message.fields_by_name["value"]).type
    fits = _COLUMNS.get(held, _is_whole)(column)
    if fits and held in _BITS:  # a narrower one would round, or be infinite
        fits = _BITS[held] <= column.bit_width if reads else column.bit_width <= _BITS[held]
    name = descriptor_pb2.FieldDescriptorProto.Type.Name(held).removeprefix("TYPE_").lower()
    return "" if fits else f"{of} is of type {name}, which does not fit a column of {column}"


def _moment(stamp: Any, digits: int) -> int:
    return int(stamp.seconds * 10**digits + stamp.nanos // 10 ** (9 - digits))


class ToProtobuf(Encoder):
    """One message a row; with `number` behind the head that registries' readers want."""

    def __init__(self, kind: Type, number: int | None) -> None:
        self._kind = kind
        self._head = b"" if number is None else head(number) + _written(_indices(kind.DESCRIPTOR))

    def values(self, table: pa.Table) -> Sequence[bytes]:
        setters = [_setter(self._kind.DESCRIPTOR, field) for field in table.schema]
        found = []
        for row in zip(*(_plain(column) for column in table.columns), strict=True):
            message = self._kind()
            for put, value in zip(setters, row, strict=True):
                if value is not None:
                    try:
                        put(message, value)
                    except (ValueError, TypeError, KeyError, OverflowError) as error:
                        raise EncodeError(f"a row does not fit the message: {error}") from None
            found.append(self._head + message.SerializeToString(deterministic=True))
        return found


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Values of a column; moments as whole numbers of their unit."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def _setter(kind: Descriptor, column: pa.Field) -> Callable[[Any, Any], None]:
    """Puts a value that is not null into a message.  EncodeError where the field cannot hold what the column does; the
    function that it gives raises what Protobuf raises, and ValueError where the field's `oneof` has another one already."""
    name = column.name
    field = kind.fields_by_name.get(name)
    if field is None:
        raise EncodeError(f"{kind.full_name} has no field {name!r}; it has {sorted(kind.fields_by_name)}")
    if pa.types.is_null(column.type):
        return lambda _message, _value: None
    if reason := _misfit(field, column.type, reads=False):
        raise EncodeError(reason)
    put = _put(field, column)
    if field.containing_oneof is None:
        return put
    oneof = field.containing_oneof.name

    def put_alone(message: Any, value: Any) -> None:
        if other := message.WhichOneof(oneof):
            raise ValueError(f"{other!r} and {name!r} are of oneof {oneof!r}, which holds one of them")
        put(message, value)

    return put_alone


def _put(field: FieldDescriptor, column: pa.Field) -> Callable[[Any, Any], None]:
    """Puts a value into a field that can hold it."""
    name = column.name
    if (enum := field.enum_type) is not None:
        return lambda message, value: setattr(
            message, name, _number_of(enum, value) if isinstance(value, str) else value
        )
    if field.message_type is None:
        return lambda message, value: setattr(message, name, value)
    if field.message_type.full_name != TIMESTAMP:
        return lambda message, value: setattr(getattr(message, name), "value", value)
    digits = _UNITS[column.type.unit]

    def put(message: Any, value: int) -> None:
        seconds, rest = divmod(value, 10**digits)
        stamp = getattr(message, name)
        stamp.seconds, stamp.nanos = seconds, rest * 10 ** (9 - digits)

    return put


def _number_of(enum: EnumDescriptor, text: str) -> int:
    """The number of a name.  Digits that are no name are the number itself, which Protobuf refuses where the enumeration is
    closed.  KeyError for another text."""
    if text not in enum.values_by_name and _NUMBER.fullmatch(text):
        return int(text)
    return int(enum.values_by_name[text].number)


# -- types out of a registry


class Types:
    """The types of one schema; each message says which of them it is."""

    def __init__(self, found: Found, fetch: Fetch) -> None:
        """ValueError says why the schema cannot be used; SourceError, why not here and now."""
        files = _files(found, fetch)
        self._file = files[_SCHEMA]
        order = TopologicalSorter({name: file.dependency for name, file in files.items()}).static_order()
        try:
            self._pool = _pool_of(files[name] for name in order)
        except (TypeError, ValueError) as error:
            raise ValueError(" ".join(str(error).split())) from None
        self._classes: dict[tuple[int, ...], Type] = {}

    def of(self, indices: tuple[int, ...]) -> Type:
        """The type at these indices, from the file's messages inwards."""
        if indices not in self._classes:
            names, messages = [self._file.package] if self._file.package else [], self._file.message_type
            for index in indices:
                if index >= len(messages):
                    raise DecodeError(f"its schema has no message at {list(indices)}")
                names.append(messages[index].name)
                messages = messages[index].nested_type
            found = self._pool.FindMessageTypeByName(".".join(names))
            self._classes[indices] = message_factory.GetMessageClass(found)
        return self._classes[indices]


def type_of(types_of: Callable[[bytes], tuple[Types, int]]) -> Callable[[bytes], tuple[Type, int]]:
    """Finds the type of a message that begins with the id of a schema and the indices of a type in it."""

    def find(value: bytes) -> tuple[Type, int]:
        types, begin = types_of(value)
        indices, begin = _read(value, begin)
        return types.of(indices), begin

    return find


def _files(found: Found, fetch: Fetch) -> dict[str, Any]:
    """The file of a schema, those that it imports, and so on.  ValueError where one is not named, or there are too many."""
    files = {_SCHEMA: _descriptor(_SCHEMA, found)}
    held = {name: (subject, version) for name, subject, version in found.references}
    waiting = list(reversed(files[_SCHEMA].dependency))
    while waiting:
        name = waiting.pop()
        if name in files:
            continue
        if len(files) > _MOST_IMPORTS:
            raise ValueError(f"it imports more than {_MOST_IMPORTS} files")
        if name in held:
            other = fetch.version(*held[name], SERIALIZED)
            held = {**{n: (subject, version) for n, subject, version in other.references}, **held}
            files[name] = _descriptor(name, other)
        else:
            files[name] = _shipped(name)
        waiting += reversed(files[name].dependency)
    return files


def _descriptor(name: str, found: Found) -> Any:
    """SourceError where it is not in the form that was asked for, which says nothing of the schema."""
    if found.kind != "PROTOBUF":
        raise ValueError(f"{name} is {found.kind}")
    file = descriptor_pb2.FileDescriptorProto()
    try:
        written = base64.b64decode(found.text, validate=True)
    except ValueError:
        raise SourceError(
            f"the schema registry does not give {name} as a descriptor (?format={SERIALIZED})"
        ) from None
    try:
        file.ParseFromString(written)
    except NotProtobufError as error:
        raise ValueError(f"{name} is no descriptor of a file: {error}") from None
    file.name = name
    return file


def _shipped(name: str) -> Any:
    """A file of types that every reader has.  SourceError where this host lacks its package, which others may have."""
    folder = next((folder for folder in _SHIPPED if name.startswith(folder)), None)
    if folder is None or not _SHIPPED_FILE.fullmatch(name):
        raise ValueError(f"it imports {name!r}, which the registry does not name")
    module = _SHIPPED[folder] + name.removeprefix(folder).removesuffix(".proto").replace("/", ".") + "_pb2"
    file = descriptor_pb2.FileDescriptorProto()
    try:
        importlib.import_module(module).DESCRIPTOR.CopyToProto(file)
    except Exception as error:  # also one that was made for another version of Protobuf
        if folder == _PROTOBUF:
            raise ValueError(f"it imports {name!r}, which Protobuf does not have") from None
        raise SourceError(
            f"a schema of the registry imports {name!r}, which is not installed here: {error}"
        ) from None
    file.name = name
    return file


def _read(value: bytes, begin: int) -> tuple[tuple[int, ...], int]:
    """The indices of a type, and where the message begins: their number, then each; one zero stands for the first type."""
    count, begin = _varint(value, begin)
    if not 0 <= count <= _MOST_INDICES:
        raise DecodeError("does not say which message of its schema it is")
    found = []
    for _ in range(count):
        index, begin = _varint(value, begin)
        if index < 0:
            raise DecodeError("does not say which message of its schema it is")
        found.append(index)
    return tuple(found) or (0,), begin


def _varint(value: bytes, begin: int) -> tuple[int, int]:
    """A number in zigzag form, seven bits a byte, and where the next thing begins."""
    number = 0
    for place, byte in enumerate(value[begin : begin + 5]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return (number >> 1) ^ -(number & 1), begin + place + 1
    raise DecodeError("does not say which message of its schema it is")


def _written(indices: Sequence[int]) -> bytes:
    numbers = [0] if list(indices) == [0] else [len(indices), *indices]
    return bytes(chain.from_iterable(_bytes_of(number << 1) for number in numbers))


def _bytes_of(number: int) -> list[int]:
    found = []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return [*found, number]


def _indices(kind: Descriptor) -> list[int]:
    """Where a type is in its file."""
    outer = kind.containing_type
    beside = kind.file.message_types_by_name.values() if outer is None else outer.nested_types
    index = [item.full_name for item in beside].index(kind.full_name)
    return [index] if outer is None else [*_indices(outer), index]


# -- types out of a file


def local(columns: pa.Schema, given: Mapping[str, Any]) -> Protobuf:
    """Reads messages of one type, which nothing precedes.  SpecError names the parameter, or the column that is no field."""
    kind = local_type(given)
    fields = sorted(kind.DESCRIPTOR.fields_by_name)
    for column in columns:
        if column.name not in fields:
            reason = f"{kind.DESCRIPTOR.full_name} has no such field{nearest(column.name, fields)}"
            raise SpecError(f"columns.{column.name}", reason)
        try:
            _getter(kind.DESCRIPTOR, column)
        except DecodeError as error:
            raise SpecError(f"columns.{column.name}", str(error)) from None
    return Protobuf(columns, lambda _value: (kind, 0))


def local_type(parameter: Mapping[str, Any]) -> Type:
    """The type that a resource names, in a file of descriptors.  SpecError names the parameter."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(Path(parameter["schema"]).read_bytes())
        pool = _pool_of(files.file)
    except (OSError, TypeError, ValueError, NotProtobufError) as error:
        said = "is no file of descriptors, as `protoc --include_imports --descriptor_set_out=FILE` writes one"
        raise SpecError("protobuf.schema", f"{said}: {' '.join(str(error).split())}") from None
    name = str(parameter["message"])
    names = [found for file in files.file for found in _names(file.package, file.message_type)]
    if name not in names:
        raise SpecError("protobuf.message", f"there is no message {name!r}{nearest(name, names)}")
    found: Type = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return found


def _names(outer: str, messages: Any) -> Iterator[str]:
    """Full names of messages, and of those in them."""
    for message in messages:
        name = f"{outer}.{message.name}".lstrip(".")
        yield name
        yield from _names(name, message.nested_type)


def _pool_of(files: Iterable[Any]) -> descriptor_pool.DescriptorPool:
    """Files with all their types; what one imports comes before it."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool
