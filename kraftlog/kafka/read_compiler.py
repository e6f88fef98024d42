"""Makes the function that reads one version of a message.

The function checks every length against the bytes that are left, and every count before it loops: `n` elements of at
least `m` bytes each need `n * m` bytes. So a value takes at most 40 times the memory of its bytes. The function raises
IndexError, `struct.error` or ValueError; `kraftlog/kafka/codec.py` turns these into MalformedBytes.

It also counts the elements of all arrays, and the tagged fields, before it reads them. If there are more than `most`,
it raises ManyElements. In slices the function is a generator that yields after every `ELEMENTS_PER_STEP` elements and
returns the same.
"""

from __future__ import annotations

from struct import Struct as Packing
from typing import Any, Final, cast

from kraftlog.kafka.errors import ManyElements
from kraftlog.kafka.generated_code import Code, Function, Step
from kraftlog.kafka.layout import Layout, element_of, is_fixed, run_step
from kraftlog.kafka.notation import DEFAULTS, Field, Message, Struct
from kraftlog.kafka.primitives import ELEMENTS_PER_STEP, FORMATS, SIZES, SMALL, UNPACK, read_varint, unpack_many

STRING_BYTES_MAX: Final = 32_767
"""Kafka's bound for every string, also where the field of its length could hold more."""

REQUESTS: Final = ("Request", "RequestHeader")
"""The ends of the names of messages that clients send. In these, U+FFFD replaces bytes that are not UTF-8, as in Java
(DB-116)."""

TAG_BYTES_MIN: Final = 2
"""A tagged field has at least its tag and its size."""


def compile_reader(message: type[Message], version: int, *, in_slices: bool = False) -> Function:
    """Compile the function from bytes, a position and a bound on the elements to a value and the position after it."""
    return _Reader(Layout(message, version), in_slices).function()


class _Reader:
    def __init__(self, layout: Layout, in_slices: bool) -> None:
        constants: dict[str, Any] = {
            "ManyElements": ManyElements,
            "new": object.__new__,
            "varint": read_varint,
            "unpack_many": unpack_many,
            "length2": Packing(">h").unpack_from,
            "length4": Packing(">i").unpack_from,
        }
        self.layout = layout
        self.in_slices = in_slices
        self.bad_text = "replace" if layout.message.__name__.endswith(REQUESTS) else "strict"
        self.code = Code(layout.message.__name__, "data, p, most", constants)

    def function(self) -> Function:
        self.code.add("end = len(data)", "k = j = 0")
        if self.in_slices:
            self.code.add("yield")  # a generator, also if the message has no arrays
        value = self._struct(self.layout.message)
        self.code.add(f"return {value}, p")
        return self.code.compiled()

    def _struct(self, struct: type[Struct]) -> str:
        """Generate the code for a struct; return the name of its variable."""
        value = self.code.variable("s")
        self.code.add(f"{value} = new({self.code.constant(struct)})")
        run: list[Field] = []
        for field in struct.FIELDS:
            if not self.layout.has(field) or self.layout.is_tagged(field):
                self._default(f"{value}.{field.name}", field)
        for field in self.layout.plain(struct):
            if is_fixed(field):
                run.append(field)
                continue
            self._fixed(value, run)
            run = []
            with self.code.at(Step(field.name)):
                self._value(field, f"{value}.{field.name}")
        self._fixed(value, run)
        if self.layout.is_flexible:
            self._tags(struct, value)
        else:
            self.code.add(f"{value}.unknown_tags = ()")
        return value

    def _default(self, target: str, field: Field) -> None:
        if field.default is not DEFAULTS:
            self.code.add(f"{target} = {field.default!r}")
            return
        struct = cast(type[Struct], field.struct)
        value = self.code.variable("d")
        self.code.add(f"{target} = {value} = new({self.code.constant(struct)})", f"{value}.unknown_tags = ()")
        for inner in struct.FIELDS:
            self._default(f"{value}.{inner.name}", inner)

    def _fixed(self, value: str, run: list[Field]) -> None:
        """Fields of fixed size that follow each other are unpacked at once."""
        if not run:
            return
        packing = Packing(">" + "".join(FORMATS[field.kind] for field in run))
        targets = ", ".join(f"{value}.{field.name}" for field in run)
        with self.code.at(run_step(run, value)):
            unpack = self.code.constant(packing.unpack_from)
            self.code.add(f"{targets}{',' if len(run) == 1 else ''} = {unpack}(data, p)")
        self.code.add(f"p += {packing.size}")

    def _value(self, field: Field, target: str) -> None:
        """Code for a field that is not of fixed size, or is a tagged one."""
        if field.is_array:
            self._counted(field, target, self._elements)
        elif field.kind == "struct":
            self._nested(field, target)
        elif is_fixed(field):
            self.code.add(f"{target}, = {self.code.constant(UNPACK[FORMATS[field.kind]][1])}(data, p)")
            self.code.add(f"p += {SIZES[field.kind]}")
        else:
            self._counted(field, target, self._bytes)

    def _nested(self, field: Field, target: str) -> None:
        struct = cast(type[Struct], field.struct)
        if not self.layout.can_be_null(field):
            self.code.add(f"{target} = {self._struct(struct)}")
            return
        self.code.add("n = data[p]", "p += 1")
        with self.code.block("if n == 255:"):
            self.code.add(f"{target} = None")
        with self.code.block("elif n != 1:"):
            self.code.add("raise ValueError(f'its first byte is {n}, not 255 (null) or 1')")
        with self.code.block("else:"):
            self.code.add(f"{target} = {self._struct(struct)}")

    def _counted(self, field: Field, target: str, rest: Any) -> None:
        """Code for a length and the value that has this length; the length -1 is null."""
        if self.layout.is_compact(field):
            self.code.add("n = data[p]", "p += 1")
            with self.code.block("if n > 127:"):
                self.code.add("n, p = varint(data, p - 1)")
            self.code.add("n -= 1")
        else:
            size = 2 if field.kind == "string" and not field.is_array else 4
            self.code.add(f"n, = length{size}(data, p)", f"p += {size}")
        if not self.layout.can_be_null(field):
            with self.code.block("if n < 0:"):
                self.code.add("raise ValueError('must not be null' if n == -1 else f'has the length {n}')")
            rest(field, target)
            return
        with self.code.block("if n < 0:"):
            with self.code.block("if n < -1:"):
                self.code.add("raise ValueError(f'has the length {n}')")
            self.code.add(f"{target} = None")
        with self.code.block("else:"):
            rest(field, target)

    def _bytes(self, field: Field, target: str) -> None:
        """Code for `n` bytes."""
        if field.kind == "string":
            with self.code.block(f"if n > {STRING_BYTES_MAX}:"):
                self.code.add(f"raise ValueError(f'has {{n}} bytes, and must have at most {STRING_BYTES_MAX}')")
        self.code.add("q = p + n")
        with self.code.block("if q > end:"):
            self.code.add("raise ValueError(f'{n} bytes do not fit in the {end - p} that are left')")
        made = {"string": f"str(data[p:q], 'utf-8', {self.bad_text!r})", "bytes": "bytes(data[p:q])"}
        view = "memoryview(data)[p:q] if n else b''"  # a view is 200 bytes
        self.code.add(f"{target} = {made.get(field.kind, view)}", "p = q")

    def _elements(self, field: Field, target: str) -> None:
        """Code for `n` elements."""
        size = self.layout.element_size_min(field)
        with self.code.block(f"if n > (end - p) // {size}:"):
            self.code.add("raise ValueError(f'{n} elements do not fit in the {end - p} bytes that are left')")
        self._count("n")
        if field.kind in SIZES:
            form = FORMATS[field.kind]
            small = self.code.constant(UNPACK[form])
            self.code.add(f"{target} = {small}[n](data, p) if n < {SMALL} else unpack_many({form!r}, n, data, p)")
            self.code.add(f"p += {size} * n")
            return
        items = self.code.variable("a")
        self.code.add(f"{items} = []")
        outer = self.code.path
        self.code.path = (*outer[:-1], Step(field.name, items))
        with self.code.block("for _ in range(n):"):
            if field.kind == "struct":
                element = self._struct(cast(type[Struct], field.struct))
            else:
                element = self.code.variable("e")
                self._counted(element_of(field), element, self._bytes)
            self.code.add(f"{items}.append({element})")
            self._step()
        self.code.path = outer
        self.code.add(f"{target} = tuple({items})")

    def _count(self, count: str) -> None:
        """Code that counts the elements that are read next."""
        self.code.add(f"k += {count}")
        with self.code.block("if k > most:"):
            self.code.add("raise ManyElements")

    def _step(self) -> None:
        """Code for the end of a loop: in slices it yields, so that other work gets its turn."""
        if self.in_slices:
            self.code.add("j += 1")
            with self.code.block(f"if not j % {ELEMENTS_PER_STEP}:"):
                self.code.add("yield")

    def _tags(self, struct: type[Struct], value: str) -> None:
        """Code for the tagged fields: their count, then tag, size and value of each. Unknown ones are kept."""
        unknown, count, tag, after = (self.code.variable(prefix) for prefix in ("u", "n", "t", "q"))
        with self.code.at(Step("unknown_tags")):
            self.code.add(f"{value}.unknown_tags = ()", f"{count} = data[p]", "p += 1")
        with self.code.block(f"if {count}:"):
            with self.code.at(Step("unknown_tags")):
                self.code.add(f"{count}, p = varint(data, p - 1)", f"{unknown} = []")
                with self.code.block(f"if {count} > (end - p) // {TAG_BYTES_MIN}:"):
                    self.code.add(f"raise ValueError(f'{{{count}}} tags do not fit in the {{end - p}} bytes left')")
                self._count(count)
            with self.code.block(f"for _ in range({count}):"):
                with self.code.at(Step("unknown_tags", unknown)):
                    self.code.add(f"{tag}, p = varint(data, p)", f"{after}, p = varint(data, p)")
                    with self.code.block(f"if {after} > end - p:"):
                        self.code.add(f"raise ValueError(f'{{{after}}} bytes do not fit in the {{end - p}} left')")
                    self.code.add(f"{after} += p")
                word = "if"
                for field in self.layout.tagged(struct):
                    with self.code.block(f"{word} {tag} == {field.tag}:"), self.code.at(Step(field.name)):
                        self._value(field, f"{value}.{field.name}")
                        with self.code.block(f"if p != {after}:"):
                            self.code.add(f"raise ValueError(f'its size is wrong by {{p - {after}}} bytes')")
                    word = "elif"
                self._unknown(word, f"{unknown}.append(({tag}, bytes(data[p:{after}])))", after)
                self._step()
            self.code.add(f"{value}.unknown_tags = tuple({unknown})")

    def _unknown(self, word: str, keep: str, after: str) -> None:
        if word == "if":
            self.code.add(keep, f"p = {after}")
            return
        with self.code.block("else:"):
            self.code.add(keep, f"p = {after}")
