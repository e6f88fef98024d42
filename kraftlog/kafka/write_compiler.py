"""Makes the function that writes one version of a message.

The function raises TypeError, AttributeError, `struct.error` or ValueError for a value that the version cannot have;
`kraftlog/kafka/codec.py` turns these into UnwritableValue. Like the reader's function, it counts the elements of all
arrays, raises ManyElements if there are more than `most`, and is a generator in slices.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packing
from typing import Any, cast

from kraftlog.kafka.errors import ManyElements
from kraftlog.kafka.generated_code import Code, Function, Step
from kraftlog.kafka.layout import Layout, element_of, is_fixed, run_step
from kraftlog.kafka.notation import DEFAULTS, Field, Message, Struct
from kraftlog.kafka.primitives import (
    ELEMENTS_PER_STEP,
    FORMATS,
    ONE_BYTE,
    PACK,
    PACK_COMPACT,
    SMALL,
    pack_many,
    varint,
)
from kraftlog.kafka.read_compiler import STRING_BYTES_MAX


def compile_writer(message: type[Message], version: int, *, in_slices: bool = False) -> Function:
    """Compile the function of a value, a callback that gets pieces of bytes in order, and a bound on the elements."""
    return _Writer(Layout(message, version), in_slices).function()


class _Writer:
    def __init__(self, layout: Layout, in_slices: bool) -> None:
        constants: dict[str, Any] = {
            "ManyElements": ManyElements,
            "varint": varint,
            "pack_many": pack_many,
            "one_byte": ONE_BYTE,
            "length2": Packing(">h").pack,
            "length4": Packing(">i").pack,
            "merged": merged,
        }
        self.layout = layout
        self.in_slices = in_slices
        self.code = Code(layout.message.__name__, "s, put, most", constants)

    def function(self) -> Function:
        self.code.add("k = j = 0")
        if self.in_slices:
            self.code.add("yield")  # a generator, also if the message has no arrays
        self._struct(self.layout.message, "s", "put")
        self.code.add("return")
        return self.code.compiled()

    def _struct(self, struct: type[Struct], value: str, put: str) -> None:
        run: list[Field] = []
        for field in struct.FIELDS:
            if not self.layout.has(field) and not field.ignorable:
                self._must_be_default(field, f"{value}.{field.name}")
        for field in self.layout.plain(struct):
            if is_fixed(field):
                run.append(field)
                continue
            self._fixed(value, run, put)
            run = []
            with self.code.at(Step(field.name)):
                self._value(field, f"{value}.{field.name}", put)
        self._fixed(value, run, put)
        with self.code.at(Step("unknown_tags")):
            if self.layout.is_flexible:
                self._tags(struct, value, put)
            else:
                with self.code.block(f"if {value}.unknown_tags:"):
                    self.code.add("raise ValueError('this version has no tagged fields')")

    def _must_be_default(self, field: Field, source: str) -> None:
        with self.code.at(Step(field.name)), self.code.block(f"if {self._differs(field, source)}:"):
            self.code.add(f"raise ValueError('version {self.layout.version} lacks this field, and it is set')")

    def _differs(self, field: Field, source: str) -> str:
        """Return the condition under which a field differs from its default."""
        if field.default is None:
            return f"{source} is not None"
        if field.default is not DEFAULTS:
            return f"{source} != {field.default!r}"
        inner = cast(type[Struct], field.struct).FIELDS
        conditions = [self._differs(deeper, f"{source}.{deeper.name}") for deeper in inner]
        if self.layout.can_be_null(field):
            return f"{source} is None or " + " or ".join([*conditions, f"{source}.unknown_tags"])
        return " or ".join([*conditions, f"{source}.unknown_tags"])

    def _fixed(self, value: str, run: list[Field], put: str) -> None:
        """Fields of fixed size that follow each other are packed at once."""
        if not run:
            return
        for field in run:
            if field.kind == "uuid":
                with self.code.at(Step(field.name)):
                    self._check_uuid(f"{value}.{field.name}")
        packing = Packing(">" + "".join(FORMATS[field.kind] for field in run))
        values = ", ".join(f"{value}.{field.name}" for field in run)
        with self.code.at(run_step(run, value)):
            self.code.add(f"{put}({self.code.constant(packing.pack)}({values}))")

    def _check_uuid(self, source: str) -> None:
        with self.code.block(f"if len({source}) != 16:"):
            self.code.add(f"raise ValueError(f'a uuid has 16 bytes, not {{len({source})}}')")

    def _value(self, field: Field, source: str, put: str) -> None:
        """Code for a field that is not of fixed size, or is a tagged one."""
        if field.is_array:
            self._nullable(field, source, put, self._elements)
        elif field.kind == "struct":
            self._nested(field, source, put)
        elif is_fixed(field):
            if field.kind == "uuid":
                self._check_uuid(source)
            self.code.add(f"{put}({self.code.constant(PACK[FORMATS[field.kind]][1])}({source}))")
        else:
            self._nullable(field, source, put, self._bytes)

    def _nested(self, field: Field, source: str, put: str) -> None:
        struct = cast(type[Struct], field.struct)
        value = self.code.variable("s")
        self.code.add(f"{value} = {source}")
        if not self.layout.can_be_null(field):
            self._struct(struct, value, put)
            return
        with self.code.block(f"if {value} is None:"):
            self.code.add(f"{put}(b'\\xff')")
        with self.code.block("else:"):
            self.code.add(f"{put}(b'\\x01')")
            self._struct(struct, value, put)

    def _nullable(self, field: Field, source: str, put: str, rest: Callable[[Field, str, str], None]) -> None:
        """Code for a field with a length, whose null is the length -1."""
        value = self.code.variable("v")
        self.code.add(f"{value} = {source}")
        if self.layout.can_be_null(field):
            null = b"\0" if self.layout.is_compact(field) else b"\xff" * _length_size(field)
            with self.code.block(f"if {value} is None:"):
                self.code.add(f"{put}({null!r})")
            with self.code.block("else:"):
                rest(field, value, put)
            return
        with self.code.block(f"if {value} is None:"):
            self.code.add(f"raise ValueError('must not be null in version {self.layout.version}')")
        rest(field, value, put)

    def _length(self, field: Field, put: str) -> None:
        """Code for the length `n`."""
        if self.layout.is_compact(field):
            self.code.add(f"{put}(one_byte[n + 1] if n < 127 else varint(n + 1))")
        else:
            self.code.add(f"{put}(length{_length_size(field)}(n))")

    def _bytes(self, field: Field, value: str, put: str) -> None:
        if field.kind == "string":
            self.code.add(f"{value} = {value}.encode()")
        self.code.add(f"n = len({value})")
        if field.kind == "string":
            with self.code.block(f"if n > {STRING_BYTES_MAX}:"):
                self.code.add(f"raise ValueError(f'has {{n}} bytes, and must have at most {STRING_BYTES_MAX}')")
        self._length(field, put)
        self.code.add(f"{put}(memoryview({value}))" if field.kind == "records" else f"{put}({value})")

    def _elements(self, field: Field, value: str, put: str) -> None:
        self.code.add(f"n = len({value})", "k += n")
        with self.code.block("if k > most:"):
            self.code.add("raise ManyElements")
        if field.kind in FORMATS:
            self._numbers(field, value, put)
            return
        self._length(field, put)
        item = self.code.variable("e")
        outer = self.code.path
        self.code.path = (*outer[:-1], Step(field.name, value, item))
        with self.code.block(f"for {item} in {value}:"):
            if field.kind == "struct":
                self._struct(cast(type[Struct], field.struct), item, put)
            else:
                encoded = self.code.variable("v")
                self.code.add(f"{encoded} = {item}")
                self._bytes(element_of(field), encoded, put)
            if self.in_slices:
                self.code.add("j += 1")
                with self.code.block(f"if not j % {ELEMENTS_PER_STEP}:"):
                    self.code.add("yield")
        self.code.path = outer

    def _numbers(self, field: Field, value: str, put: str) -> None:
        """Code for an array of elements of fixed size."""
        form = FORMATS[field.kind]
        if field.kind == "uuid":
            item = self.code.variable("e")
            with self.code.block(f"for {item} in {value}:"):
                self._check_uuid(item)
        with self.code.block(f"if n < {SMALL}:"):
            if self.layout.is_compact(field):
                self.code.add(f"{put}({self.code.constant(PACK_COMPACT[form])}[n](n + 1, *{value}))")
            else:
                self._length(field, put)
                self.code.add(f"{put}({self.code.constant(PACK[form])}[n](*{value}))")
        with self.code.block("else:"):
            self._length(field, put)
            self.code.add(f"{put}(pack_many({form!r}, {value}))")

    def _tags(self, struct: type[Struct], value: str, put: str) -> None:
        """Code for the tagged fields: those that differ from their default, and the unknown ones, by tag."""
        fields = self.layout.tagged(struct)
        if not fields:
            with self.code.block(f"if {value}.unknown_tags:"):
                self.code.add(f"{put}(merged([], {value}.unknown_tags))")
            with self.code.block("else:"):
                self.code.add(f"{put}(b'\\0')")
            return
        tags, parts = self.code.variable("t"), self.code.variable("b")
        self.code.add(f"{tags} = []")
        for field in fields:
            source = f"{value}.{field.name}"
            path = self.code.path
            self.code.path = (*path[:-1], Step(field.name))
            with self.code.block(f"if {self._differs(field, source)}:"):
                self.code.add(f"{parts} = []")
                self._value(field, source, f"{parts}.append")
                self.code.add(f"{tags}.append(({field.tag}, b''.join({parts})))")
            self.code.path = path
        with self.code.block(f"if {tags} or {value}.unknown_tags:"):
            self.code.add(f"{put}(merged({tags}, {value}.unknown_tags))")
        with self.code.block("else:"):
            self.code.add(f"{put}(b'\\0')")


def _length_size(field: Field) -> int:
    return 2 if field.kind == "string" and not field.is_array else 4


def merged(known: list[tuple[int, bytes]], unknown: tuple[tuple[int, bytes], ...]) -> bytes:
    """Return the bytes of all tagged fields, in the order of their tags."""
    tags = sorted([*known, *unknown], key=_tag) if unknown else known
    parts = [varint(len(tags))]
    for tag, value in tags:
        parts += varint(tag), varint(len(value)), value
    return b"".join(parts)


def _tag(item: tuple[int, bytes]) -> int:
    return item[0]
