"""Code that is generated from a table. Each line is linked to its field, so that an error can name the field.

A message in one version becomes one function without calls for its structs: their code is nested as they are nested in
the table. The function itself holds no paths. If it raises, the line shows the field, and the function's variables show
the index in each array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct as Packing
from struct import error as PackingError
from types import TracebackType
from typing import Any, Final

INDENT: Final = "    "


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path: a field, or the fields of fixed size that a line reads or writes at once."""

    name: str
    items: str = ""
    """For an array: the variable with its elements; of an array that is being read, those read so far."""
    item: str = ""
    """For an array that is written: the variable with the element that is being written."""
    run: tuple[tuple[str, str], ...] = ()
    """For a line of several fields: each with its format."""
    value: str = ""
    """For a line of several fields: the variable with the struct."""


@dataclass(frozen=True, slots=True)
class Function:
    """A compiled function, with the path of the field of each of its lines."""

    call: Callable[..., Any]
    name: str
    paths: tuple[tuple[Step, ...], ...]

    def path(self, traceback: TracebackType | None) -> str:
        """Return the path of the field at which the function raised."""
        while traceback is not None and traceback.tb_frame.f_code is not self.call.__code__:
            traceback = traceback.tb_next
        if traceback is None:
            return self.name
        variables = traceback.tb_frame.f_locals
        return ".".join([self.name, *(_shown(step, variables) for step in self.paths[traceback.tb_lineno - 1])])


def _shown(step: Step, variables: dict[str, Any]) -> str:
    if step.run:
        return _failed(step, variables)
    if not step.items:
        return step.name
    items = variables[step.items]
    if not step.item:  # the elements so far
        return f"{step.name}[{len(items)}]"
    item = variables[step.item]
    return f"{step.name}[{next(index for index, other in enumerate(items) if other is item)}]"


def _failed(step: Step, variables: dict[str, Any]) -> str:
    """Return the field of a run that failed: the first one that the bytes end within, or that cannot be packed."""
    size = 0
    for name, form in step.run:
        size += Packing(f">{form}").size
        if "data" in variables:
            if variables["p"] + size > len(variables["data"]):
                return name
            continue
        try:
            Packing(f">{form}").pack(getattr(variables[step.value], name))
        except (PackingError, AttributeError):
            return name
    return step.name


class Code:
    """The lines of a function that is being generated."""

    def __init__(self, name: str, signature: str, constants: dict[str, Any]) -> None:
        self.name = name
        self.lines = [f"def function({signature}):"]
        self.paths: list[tuple[Step, ...]] = [()]
        self.path: tuple[Step, ...] = ()
        self.depth = 1
        self.constants = constants
        self.names = 0

    def add(self, line: str, *more: str) -> None:
        """Add lines, for the field that `path` names."""
        for text in (line, *more):
            self.lines.append(INDENT * self.depth + text)
            self.paths.append(self.path)

    def block(self, head: str) -> Block:
        """Add a line and indent what follows: `with code.block("if n:"):`."""
        self.add(head)
        return Block(self)

    def at(self, step: Step) -> At:
        """Link the lines that follow to this step below the current path: `with code.at(step):`."""
        return At(self, step)

    def variable(self, prefix: str) -> str:
        """Return the name of a new variable."""
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, value: Any) -> str:
        """Return the name that the code has for a constant value."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = f"C{len(self.constants)}"
        self.constants[name] = value
        return name

    def compiled(self) -> Function:
        """Compile the lines and return the function."""
        namespace = dict(self.constants)
        exec(compile("\n".join(self.lines), f"<{self.name}>", "exec"), namespace)  # noqa: S102  of our own tables only
        return Function(namespace["function"], self.name, tuple(self.paths))


@dataclass(frozen=True, slots=True)
class Block:
    """A context manager: lines that are added within it are indented."""

    code: Code

    def __enter__(self) -> None:
        self.code.depth += 1

    def __exit__(self, *_: object) -> None:
        self.code.depth -= 1


class At:
    """A context manager: lines that are added within it are linked to a step."""

    __slots__ = ("code", "outer", "step")

    def __init__(self, code: Code, step: Step) -> None:
        self.code = code
        self.step = step
        self.outer = code.path

    def __enter__(self) -> None:
        self.code.path = (*self.outer, self.step)

    def __exit__(self, *_: object) -> None:
        self.code.path = self.outer
