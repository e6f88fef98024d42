"""The notation of the message tables: a class is a table, an attribute is a field, and the class is the value's type.

    class FetchTopic(Struct):
        topic: str = string("4-12", ignorable=True)
        topic_id: Uuid = uuid("13+", ignorable=True)
        partitions: tuple[FetchPartition, ...] = array(FetchPartition)

    class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
        cluster_id: str | None = string("12+", null=True, default=None, tag=0, ignorable=True)
        ...

The tables have what Kafka's JSON files have (FM-23). The order of the fields is their order in bytes. A field says
- in which versions it exists: `"13+"`, `"4-12"`, `"7"`; nothing for every version that its struct is in;
- in which of them it may be null: `null=True` for all, or versions;
- its default, if that is not 0, false, "", no bytes, no elements, the zero uuid, or a struct of defaults;
- its tag, if it is a tagged field (KIP-482);
- that it is `ignorable`: a version that lacks it is written without it. Any other field that a version lacks must have
  its default (as in Kafka).

Names are Kafka's in snake case: `clusterId` is `cluster_id`. `name=` gives Kafka's name where this rule does not.
Null and empty differ: None and "" or (). A value has one more attribute, `unknown_tags`: the tagged fields that the
table does not have, as (tag, bytes); writing the value writes them again. Values are not frozen, for speed; no code
changes a value that other code holds.

`kraftlog/kafka/codec.py` reads and writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, cast, dataclass_transform, overload

Uuid: TypeAlias = bytes
"""16 bytes. Kafka's topic ids, directory ids and incarnations."""

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID: Final[Uuid] = bytes(16)
T = TypeVar("T")
DEFAULTS: Final = object()
"""The default of a struct that is not null: a new struct of defaults."""
NEWEST: Final = 32767
"""The end of an open range of versions."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions `lowest` to `highest`, both included."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse `"3"`, `"4-12"`, `"13+"`, or `"none"`, which contains no version."""
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), NEWEST)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __iter__(self) -> Any:
        return iter(range(self.lowest, self.highest + 1))

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


ALL: Final = Versions(0, NEWEST)
NONE: Final = Versions(1, 0)


@dataclass(slots=True)
class Field:
    """One field of a table."""

    kind: str
    """Kafka's word for the type: int8 to int64, uint16, float64, bool, string, bytes, records, uuid, struct."""
    versions: Versions
    null: Versions
    default: Any
    tag: int | None
    ignorable: bool
    struct: type[Struct] | None = None
    """The struct of the field, or of the elements of an array."""
    is_array: bool = False
    is_flexible: bool = True
    """If False, the field has the form from before KIP-482 in every version."""
    kafka_name: str = ""
    name: str = field(default="", init=False)

    def new_default(self) -> Any:
        """Return the default value."""
        if self.default is DEFAULTS:
            return cast(type[Struct], self.struct)()
        return self.default


def _field(
    kind: str, versions: str, default: Any, null: str | bool = False, tag: int | None = None, ignorable: bool = False,
    **more: Any,
) -> Any:  # fmt: skip
    nulls = ALL if null is True else Versions.parse(null) if null else NONE
    name = more.pop("name", "")
    return Field(kind, _versions(versions), nulls, default, tag, ignorable, kafka_name=name, **more)


def _versions(text: str) -> Versions:
    return Versions.parse(text) if text else ALL


def _number(kind: str) -> Callable[..., int]:
    def number(
        versions: str = "", *, default: int = 0, tag: int | None = None, ignorable: bool = False, name: str = ""
    ) -> int:
        return cast(int, _field(kind, versions, default, tag=tag, ignorable=ignorable, name=name))

    return number


int8: Final = _number("int8")
int16: Final = _number("int16")
uint16: Final = _number("uint16")
int32: Final = _number("int32")
int64: Final = _number("int64")


def float64(versions: str = "", *, default: float = 0.0, ignorable: bool = False) -> float:
    """A field of Kafka's type float64."""
    return cast(float, _field("float64", versions, default, ignorable=ignorable))


def boolean(
    versions: str = "", *, default: bool = False, tag: int | None = None, ignorable: bool = False
) -> bool:  # fmt: skip
    """A field of Kafka's type bool."""
    return cast(bool, _field("bool", versions, default, tag=tag, ignorable=ignorable))


def uuid(versions: str = "", *, tag: int | None = None, ignorable: bool = False) -> Uuid:
    """A field of Kafka's type uuid."""
    return cast(Uuid, _field("uuid", versions, ZERO_UUID, tag=tag, ignorable=ignorable))


@overload
def string(
    versions: str = "", *, default: str = "", tag: int | None = None, ignorable: bool = False, flexible: bool = True
) -> str: ...
@overload
def string(
    versions: str = "", *, null: str | Literal[True], default: str | None = "", tag: int | None = None,
    ignorable: bool = False, flexible: bool = True,
) -> str | None: ...  # fmt: skip
def string(versions: str = "", *, default: str | None = "", flexible: bool = True, **more: Any) -> str | None:
    """A field of Kafka's type string: UTF-8, at most 32,767 bytes where the length has two bytes."""
    return cast(str | None, _field("string", versions, default, is_flexible=flexible, **more))


@overload
def binary(versions: str = "", *, tag: int | None = None, ignorable: bool = False) -> bytes: ...
@overload
def binary(
    versions: str = "", *, null: str | Literal[True], default: bytes | None = b"", ignorable: bool = False
) -> bytes | None: ...
def binary(versions: str = "", *, default: bytes | None = b"", **more: Any) -> bytes | None:
    """A field of Kafka's type bytes."""
    return cast(bytes | None, _field("bytes", versions, default, **more))


@overload
def record_bytes(versions: str = "") -> Buffer: ...
@overload
def record_bytes(versions: str = "", *, null: str | Literal[True], default: bytes | None = b"") -> Buffer | None: ...
def record_bytes(versions: str = "", *, default: bytes | None = b"", **more: Any) -> Buffer | None:
    """A field of Kafka's type records: record batches, which are read as a view of the message's bytes, not copied."""
    return cast(Buffer | None, _field("records", versions, default, **more))


@overload
def struct(
    of: type[T], versions: str = "", *, tag: int | None = None, ignorable: bool = False, name: str = ""
) -> T: ...
@overload
def struct(
    of: type[T], versions: str = "", *, null: str | Literal[True], default: None = ..., tag: int | None = None,
    ignorable: bool = False, name: str = "",
) -> T | None: ...  # fmt: skip
def struct(of: type[T], versions: str = "", *, default: object = DEFAULTS, **more: Any) -> T | None:
    """A field that is a struct. Its default is a struct of defaults, or None."""
    return cast(T, _field("struct", versions, default, struct=of, **more))


@overload
def array(
    of: Callable[..., T], versions: str = "", *, tag: int | None = None, ignorable: bool = False
) -> tuple[T, ...]: ...
@overload
def array(
    of: Callable[..., T], versions: str = "", *, null: str | Literal[True], default: tuple[T, ...] | None = (),
    tag: int | None = None, ignorable: bool = False,
) -> tuple[T, ...] | None: ...  # fmt: skip
def array(
    of: Callable[..., T], versions: str = "", *, default: tuple[T, ...] | None = (), **more: Any
) -> tuple[T, ...] | None:
    """A field that is an array, of a struct or of one of the types above: `array(int32)`."""
    if isinstance(of, StructType):
        made = _field("struct", versions, default, struct=of, is_array=True, **more)
    else:
        made = _field(cast(Field, of()).kind, versions, default, is_array=True, **more)
    return cast(tuple[T, ...], made)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """The metaclass of tables: it turns the fields of a class into slots and `FIELDS`."""

    FIELDS: tuple[Field, ...]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any
    ) -> StructType:  # fmt: skip
        """Make the class of a class statement."""
        fields = []
        for key, value in [(key, value) for key, value in namespace.items() if isinstance(value, Field)]:
            value.name = key
            value.kafka_name = value.kafka_name or kafka_name(key)
            fields.append(value)
            del namespace[key]
        namespace["FIELDS"] = tuple(fields)
        namespace.setdefault("__slots__", tuple(found.name for found in fields))
        return super().__new__(mcs, name, bases, namespace, **keywords)


@cache
def _values_of(struct: StructType) -> Callable[[Struct], object]:
    """A function that returns all values of a struct: two calls compare two structs, however many fields they have."""
    return attrgetter(*(found.name for found in struct.FIELDS), "unknown_tags")


class Struct(metaclass=StructType):
    """A struct of a message. Its constructor takes a keyword for each field; an omitted field gets its default."""

    __slots__ = ("unknown_tags",)

    if TYPE_CHECKING:
        unknown_tags: tuple[tuple[int, bytes], ...] = ()

    def __init__(self, **values: Any) -> None:
        made = _initializer(type(self))
        type(self).__init__ = made  # type: ignore[method-assign]  # the next one is made three times as fast
        made(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        values = _values_of(type(self))
        return bool(values(self) == values(other))

    __hash__ = None  # type: ignore[assignment]  # a value may change

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self.__slots__]
        tags = [f"unknown_tags={self.unknown_tags!r}"] if self.unknown_tags else []
        return f"{type(self).__name__}({', '.join(shown + tags)})"


class Message(Struct):
    """A message: a request, a response, a record, or a header.

    `key` is the API key of a request and its response, or the number of a record; -1 if there is none.
    `unstable` are versions that Kafka offers only with `unstable.api.versions.enable`. The values of a `closed` message
    are never shown, not even by `repr`: they are credentials and the like.
    """

    __slots__ = ()

    KEY: ClassVar[int]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[Versions]
    UNSTABLE: ClassVar[Versions]
    IS_CLOSED: ClassVar[bool]

    def __init_subclass__(
        cls, *, key: int = -1, versions: str, flexible: str, unstable: str = "none", closed: bool = False
    ) -> None:
        cls.KEY = key
        cls.VERSIONS = Versions.parse(versions)
        cls.FLEXIBLE = Versions.parse(flexible)
        cls.UNSTABLE = Versions.parse(unstable)
        cls.IS_CLOSED = closed

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)" if self.IS_CLOSED else super().__repr__()


def _initializer(of: type[Struct]) -> Callable[..., None]:
    """Return the `__init__` of a struct, with a keyword for each field."""
    parameters = [f"{found.name}={found.name}" for found in of.FIELDS]
    lines = [f"def __init__(self, {', '.join(['*', *parameters, 'unknown_tags=()'])}):"]
    for found in of.FIELDS:
        value = found.name
        if found.default is DEFAULTS:
            value = f"struct_of_{value}() if {value} is DEFAULTS else {value}"
        lines.append(f"    self.{found.name} = {value}")
    lines.append("    self.unknown_tags = unknown_tags")
    namespace: dict[str, Any] = {found.name: found.default for found in of.FIELDS}
    namespace |= {f"struct_of_{found.name}": found.struct for found in of.FIELDS} | {"DEFAULTS": DEFAULTS}
    exec("\n".join(lines), namespace)  # noqa: S102  of our own tables only
    initializer: Callable[..., None] = namespace["__init__"]
    initializer.__qualname__ = f"{of.__qualname__}.__init__"
    return initializer


def kafka_name(name: str) -> str:
    """Kafka's name of a field, as its tools print it: `clusterId` for `cluster_id`."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)
