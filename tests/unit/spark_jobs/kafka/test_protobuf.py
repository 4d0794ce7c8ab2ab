"""Messages in Protobuf: what becomes of each kind of field, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.runtime_version import VersionError
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.column_types import parse_columns
from reprise.spark_jobs.errors import DecodeError, EncodeError, SourceError, SpecError
from reprise.spark_jobs.kafka.decode import decode, make_decoder
from reprise.spark_jobs.kafka.encode import make_encoder
from reprise.spark_jobs.kafka.protobuf import ToProtobuf, Types, local_type, type_of
from reprise.spark_jobs.kafka.registry import Found
from tests.support.descriptors import ROW, descriptor_file, text_of

F = descriptor_pb2.FieldDescriptorProto
COLUMNS = {
    "id": "int64", "name": "string", "share": "double", "note": "string", "colour": "string", "at": "timestamp[us]",
    "most": "int64", "code": "int32", "raw": "binary", "good": "bool", "single": "float", "few": "uint32",
    "time": "timestamp[ms]", "mail": "string", "phone": "int64",
}  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"id": -1, "name": "ä", "share": 0.5, "note": "", "colour": "RED", "at": 1_500_000,
     "most": 0, "code": 1, "raw": b"\0\xff", "good": True, "single": 0.1, "few": 2**32 - 1, "time": -5,
     "mail": "", "phone": None},
    {"id": 2**62, "name": "", "share": 0.0, "note": None, "colour": "NONE", "at": None,
     "most": None, "code": 0, "raw": b"", "good": False, "single": 0.0, "few": 0, "time": 0,
     "mail": None, "phone": 0},
    {"id": 0, "name": "n", "share": 1e300, "note": "x", "colour": "7", "at": 0,
     "most": 1, "code": -1, "raw": b"r", "good": False, "single": -1.5, "few": 1, "time": 1,
     "mail": None, "phone": None},
]  # fmt: skip


@pytest.fixture
def given_type(tmp_path: Path) -> dict[str, str]:
    """The parameter `protobuf` of a resource."""
    return {"schema": str(descriptor_file(tmp_path / "row.bin")), "message": "shop.Row"}


def table(rows: list[dict[str, Any]], columns: dict[str, str] = COLUMNS) -> pa.Table:
    schema = parse_columns(columns)
    assert schema is not None
    return pa.Table.from_arrays([pa.array([r[f.name] for r in rows], f.type) for f in schema], schema=schema)


def test_each_kind_of_field_comes_back(given_type: dict[str, str]) -> None:
    """A field without presence has its default; one that has presence, a wrapper or a moment may be null; a number of an
    enumeration that has no name stays that number."""
    wanted = table(ROWS)
    values = make_encoder("protobuf", given_type).values(wanted)
    found = decode(make_decoder("protobuf", wanted.schema, given_type), values)
    assert (found.table, dict(found.bad), list(found.rows)) == (wanted, {}, [1, 1, 1])


def test_a_number_without_a_name_is_refused_where_the_enumeration_has_no_others(tmp_path: Path) -> None:
    """Only a closed enumeration, as those of proto2 are, says that there is no such number."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto2")
    file.enum_type.add(name="Colour").value.add(name="RED", number=1)
    file.message_type.add(name="Row").field.add(
        name="colour", number=1, type=F.TYPE_ENUM, label=F.LABEL_OPTIONAL, type_name=".shop.Colour"
    )
    path = tmp_path / "row.bin"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    encoder = make_encoder("protobuf", {"schema": str(path), "message": "shop.Row"})
    with pytest.raises(EncodeError, match="does not fit"):
        encoder.values(pa.table({"colour": ["7"]}))
    assert encoder.values(pa.table({"colour": ["RED"]})) == [b"\x08\x01"]


def test_of_a_oneof_one_column_may_have_a_value(given_type: dict[str, str]) -> None:
    """The default of its kind is a value, too: only null leaves a field unset."""
    encoder = make_encoder("protobuf", given_type)
    reach = {"mail": "string", "phone": "int64"}
    encoder.values(table([{"mail": "a", "phone": None}, {"mail": None, "phone": 0}], reach))
    for row in ({"mail": "a", "phone": 1}, {"mail": "", "phone": 0}):
        with pytest.raises(EncodeError, match="'mail' and 'phone' are of oneof 'reach', which holds one"):
            encoder.values(table([row], reach))


def test_a_column_without_a_type_leaves_its_field_unset(given_type: dict[str, str]) -> None:
    columns = pa.table({"id": [1], "at": pa.nulls(1), "share": pa.nulls(1)})
    assert make_encoder("protobuf", given_type).values(columns) == [b"\x08\x01"]


LOSSY = [
    *(
        ("id", "double"),
        ("id", "bool"),
        ("id", "string"),
        ("id", "date32"),
        ("few", "float"),
        ("share", "int64"),
    ),
    *(
        ("share", "timestamp[us]"),
        ("share", "bool"),
        ("single", "int32"),
        ("good", "int64"),
        ("good", "double"),
    ),
    *(("name", "binary"), ("raw", "string"), ("colour", "double"), ("colour", "bool"), ("most", "double")),
    *(("at", "date32"), ("at", "double")),
]


@pytest.mark.parametrize(("name", "column"), [*LOSSY, ("share", "float"), ("single", "halffloat")])
def test_a_column_that_would_change_values_is_refused_at_load(
    given_type: dict[str, str], name: str, column: str
) -> None:
    with pytest.raises(SpecError, match=rf"field '{name}' of shop.Row is .*column") as refused:
        make_decoder("protobuf", parse_columns({name: column}), given_type)
    assert refused.value.field == f"columns.{name}"


@pytest.mark.parametrize(("name", "column"), [*LOSSY, ("single", "double")])
def test_a_column_that_a_field_would_change_is_not_written(
    given_type: dict[str, str], name: str, column: str
) -> None:
    """Whatever values it has: null here, which any field could hold."""
    columns = parse_columns({name: column})
    assert columns is not None
    with pytest.raises(EncodeError, match=rf"field '{name}' of shop.Row is .*column"):
        make_encoder("protobuf", given_type).values(columns.empty_table())


@pytest.mark.parametrize(
    ("name", "column"), [("single", pa.float16()), ("share", pa.float32()), ("few", pa.int64())]
)
def test_a_wider_field_takes_a_narrower_column(
    given_type: dict[str, str], name: str, column: pa.DataType
) -> None:
    values = pa.array([1], pa.int8()).cast(column)
    (value,) = make_encoder("protobuf", given_type).values(pa.table({name: values}))
    assert getattr(local_type(given_type).FromString(value), name) == 1


@pytest.mark.parametrize(("name", "column"), [("single", "double"), ("few", "int64"), ("id", "int8")])
def test_a_column_of_its_kind_takes_a_field_or_the_message_is_bad(
    given_type: dict[str, str], name: str, column: str
) -> None:
    decoder = make_decoder("protobuf", parse_columns({name: column}), given_type)
    kind = local_type(given_type)
    assert decode(decoder, [kind(**{name: 2}).SerializeToString()]).table.to_pylist() == [{name: 2}]
    if name == "id":
        assert "does not fit" in decode(decoder, [kind(id=300).SerializeToString()]).bad[0]


def test_what_another_program_has_written_is_read(given_type: dict[str, str]) -> None:
    message = local_type(given_type)(id=5, note="n", colour=7)
    message.at.seconds, message.at.nanos, message.most.value = -1, 999_999_999, 9
    columns = {"id": "int64", "colour": "string", "at": "timestamp[ms]", "most": "int64"}
    found = decode(
        make_decoder("protobuf", parse_columns(columns), given_type), [message.SerializeToString()]
    )
    (row,) = found.table.cast(
        pa.schema({**{n: pa.int64() for n in columns}, "colour": pa.string()})
    ).to_pylist()
    assert row == {"id": 5, "colour": "7", "at": -1, "most": 9}, "an unknown colour is its number"


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_whatever_the_bytes_are_a_message_is_read_or_bad(values: list[bytes]) -> None:
    types = Types(Found("PROTOBUF", text_of(ROW)), None)  # type: ignore[arg-type]
    decoder = make_decoder_of(types)
    found = decode(decoder, values)
    assert len(found.bad) + found.table.num_rows == len(values)


def make_decoder_of(types: Types) -> Any:
    from reprise.spark_jobs.kafka.protobuf import Protobuf

    return Protobuf(parse_columns({"id": "int64", "name": "string"}), type_of(lambda _value: (types, 0)))


def test_bytes_of_another_type_are_bad(given_type: dict[str, str]) -> None:
    decoder = make_decoder("protobuf", parse_columns({"id": "int64", "name": "string"}), given_type)
    found = decode(decoder, [b"\x08\x05", b"\x12\xff", b""])
    assert found.table.to_pylist() == [{"id": 5, "name": ""}, {"id": 0, "name": ""}]
    assert found.bad[1].startswith("not a message of type shop.Row")


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"schema": "nowhere.bin"}, "protobuf.schema", "no file of descriptors"),
        ({"schema": __file__}, "protobuf.schema", "no file of descriptors"),
        ({"message": "shop.Rw"}, "protobuf.message", "did you mean 'shop.Row'?"),
        ({"id": 7}, "protobuf", "expected {schema: FILE, message: NAME} or {registry: URL}"),
        ({"columns": {"nam": "string"}}, "columns.nam", "no such field; did you mean 'name'?"),
        ({"columns": {"tags": "string"}}, "columns.tags", "no single value"),
        ({"columns": {"where": "string"}}, "columns.where", "no single value"),
        ({"columns": {"at": "int64"}}, "columns.at", "timestamp[us]"),
    ],
)
def test_what_cannot_be_read_is_refused_at_load(
    given_type: dict[str, Any], change: dict[str, Any], field: str, reason: str
) -> None:
    columns = (
        parse_columns(change.pop("columns", {"id": "int64"}))
        if "columns" in change
        else parse_columns({"id": "int64"})
    )
    with pytest.raises(SpecError) as refused:
        make_decoder("protobuf", columns, {**given_type, **change})
    assert (refused.value.field, reason in refused.value.reason) == (field, True), refused.value.reason


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"nobody": pa.array([1])}, "has no field 'nobody'"),
        ({"tags": pa.array(["a"])}, "no single value"),
        ({"at": pa.array([1])}, "is a Timestamp; the column is int64"),
        ({"id": pa.array(["a"])}, "is of type int64, which does not fit a column of string"),
        ({"code": pa.array([2**40])}, "does not fit"),
        ({"colour": pa.array(["PINK"])}, "does not fit"),
        ({"colour": pa.array([str(2**40)])}, "does not fit"),
        ({"colour": pa.array([" 7"])}, "does not fit"),
    ],
)
def test_what_a_message_cannot_hold_is_refused(
    given_type: dict[str, str], columns: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EncodeError, match=reason):
        make_encoder("protobuf", given_type).values(pa.table(columns))


@pytest.mark.parametrize(
    ("name", "indices"), [("shop.Row", b"\0"), ("shop.Row.Place", b"\x04\0\0"), ("shop.Other", b"\x02\x02")]
)
def test_the_id_and_the_indices_of_the_type_stand_before_the_message(
    given_type: dict[str, str], name: str, indices: bytes
) -> None:
    encoder = make_encoder("protobuf", {**given_type, "message": name, "id": 258})
    (value,) = encoder.values(pa.table({"city": ["x"]} if name == "shop.Row.Place" else {"id": [1]}))
    assert value.startswith(b"\0\0\0\x01\x02" + indices)
    assert isinstance(encoder, ToProtobuf)
    types = Types(Found("PROTOBUF", text_of(ROW)), None)  # type: ignore[arg-type]
    kind, begin = type_of(lambda _value: (types, 5))(value)
    assert (kind.DESCRIPTOR.full_name, begin) == (name, 5 + len(indices))


@pytest.mark.parametrize(
    "indices", [b"", b"\x80", b"\x01", b"\x02\x08", b"\x04\0\x0a", b"\x02\x01", b"\xff" * 6]
)
def test_indices_that_lead_nowhere_are_bad(indices: bytes) -> None:
    types = Types(Found("PROTOBUF", text_of(ROW)), None)  # type: ignore[arg-type]
    with pytest.raises(DecodeError, match="message"):
        type_of(lambda _value: (types, 0))(indices)


def test_a_column_of_categories_is_text(given_type: dict[str, str]) -> None:
    columns = pa.table({"name": pa.array(["a", "a"]).dictionary_encode()})
    assert len(set(make_encoder("protobuf", given_type).values(columns))) == 1


BROKEN = descriptor_pb2.FileDescriptorProto(
    message_type=[{"name": "A", "field": [F(name="b", number=1, type=11, type_name=".B")]}]
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (text_of(BROKEN), "pool"),
        ("////", "no descriptor of a file"),
        (
            text_of(descriptor_pb2.FileDescriptorProto(dependency=["os.proto"])),
            "which the registry does not name",
        ),
        (text_of(descriptor_pb2.FileDescriptorProto(dependency=["google/../os.proto"])), "does not name"),
        (
            text_of(descriptor_pb2.FileDescriptorProto(dependency=["google/protobuf/nothing.proto"])),
            "Protobuf does not have",
        ),
        (text_of(descriptor_pb2.FileDescriptorProto(dependency=["(schema)"])), "cycle"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(text: str, reason: str) -> None:
    """Files that a schema imports are named by whoever registers it: only those of known folders are looked for here."""
    with pytest.raises(ValueError, match=reason):
        Types(Found("PROTOBUF", text), None)  # type: ignore[arg-type]


def test_a_registry_that_does_not_know_the_form_is_no_fault_of_a_message() -> None:
    """Another registry, or this one after an update, would give other rows for the same messages."""
    with pytest.raises(SourceError, match=r"as a descriptor \(\?format=serialized\)"):
        Types(Found("PROTOBUF", 'syntax = "proto3";'), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("google/type/date.proto", "google.type"),
        ("confluent/meta.proto", "confluent_kafka.schema_registry.confluent"),
    ],
)
def test_a_host_without_a_package_is_no_fault_of_a_message(
    monkeypatch: pytest.MonkeyPatch, file: str, package: str
) -> None:
    """Another host may have it, and would give other rows for the same messages."""
    found = Found("PROTOBUF", text_of(descriptor_pb2.FileDescriptorProto(dependency=[file])))
    Types(found, None)  # type: ignore[arg-type]
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SourceError, match=f"imports '{file}', which is not installed here"):
        Types(found, None)  # type: ignore[arg-type]


def test_a_package_for_another_version_of_protobuf_is_no_fault_of_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Protobuf raises as it is imported is no ImportError."""
    found = Found(
        "PROTOBUF", text_of(descriptor_pb2.FileDescriptorProto(dependency=["google/type/date.proto"]))
    )
    refused = MagicMock(side_effect=VersionError("gencode 9.0.0 runtime 7.0.0"))
    monkeypatch.setattr("importlib.import_module", refused)
    with pytest.raises(SourceError, match="not installed here: gencode"):
        Types(found, None)  # type: ignore[arg-type]


class Importing:
    """A registry of files of which each imports those that `imports` says."""

    def __init__(self, imports: Callable[[str], list[str]]) -> None:
        self.imports, self.asked = imports, 0

    def found(self, name: str) -> Found:
        names = self.imports(name)
        file = descriptor_pb2.FileDescriptorProto(dependency=names)
        return Found("PROTOBUF", text_of(file), tuple((name, name, 1) for name in names))

    def schema(self, number: int, form: str) -> Found:
        raise NotImplementedError

    def version(self, subject: str, version: int, form: str) -> Found:
        self.asked += 1
        return self.found(subject)


def test_imports_are_followed_up_to_a_hundred() -> None:
    """As a chain of them is followed, in which each needs a request of its own."""
    enough = Importing(lambda name: [str(int(name) + 1)] if int(name) < 100 else [])
    endless = Importing(lambda name: [str(int(name) + 1)])
    Types(enough.found("0"), enough)
    with pytest.raises(ValueError, match="imports more than 100 files"):
        Types(endless.found("0"), endless)
    assert (enough.asked, endless.asked) == (100, 100)


def test_a_file_that_two_others_import_is_asked_for_once() -> None:
    fork = Importing({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}.__getitem__)
    Types(fork.found("a"), fork)
    assert fork.asked == 3


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reprise.spark_jobs.kafka.protobuf", None)
    with pytest.raises(SpecError, match=r"pip install 'reprise-streams\[protobuf\]'") as refused:
        make_decoder("protobuf", parse_columns({"id": "int64"}), {"registry": "http://r"})
    assert refused.value.field == "protobuf"
