"""The commands of `kraftlog shell`: a walk through the tree of the metadata (kraftlog/offline/metadata_tree.py; OT-11).

A line is split into words as a POSIX shell does it, with quotes and backslashes. In a path `{a,b}` stands for each of
its alternatives, and then `*`, `?`, `[...]` and `[!...]` for every name in the tree that they match, quoted or not: no
name in the tree has such a character in it. `..` removes the name before it, whether there is such a directory or not.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from kraftlog.offline.metadata_tree import Directory, File, Node, Path, printable, root, walk

ALTERNATIVES_MAX: Final = 10_000
"""How many paths, about, one path with braces may stand for."""

TREE_ENTRIES: Final = 20
"""How many entries of each directory `tree` shows by default."""

_INNERMOST_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")


class CommandError(Exception):
    """A command fails; the message says why."""


class Given(NamedTuple):
    """What follows a command's name."""

    options: Mapping[str, str]
    words: Sequence[str]


class Source(Protocol):
    """Where the metadata comes from."""

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A read transaction on the newest state, for one command. Raises StorageError if it cannot be read."""
        ...


class Found(NamedTuple):
    """The file or directory that a path names."""

    path: Path
    node: Node
    shown: str
    """The printed path: relative if a relative path was given and is below a current directory that is not the root."""


# --- paths ------------------------------------------------------------------------------------------------------------


def alternatives(text: str) -> list[str]:
    """The paths that a path with braces stands for, each once; CommandError if too many. Braces without comma stay."""
    found: dict[str, None] = {}
    left = [text]
    for _ in range(ALTERNATIVES_MAX):
        if not left:
            return list(found)
        one = left.pop()
        braces = _INNERMOST_BRACES.search(one)
        if braces is None:
            found[one] = None
        else:
            parts = reversed(braces[1].split(","))
            left += [one[: braces.start()] + part + one[braces.end() :] for part in parts]
    raise CommandError(f"{printable(text)}: stands for too many paths")


def find_paths(tree: Directory, current: Path, pattern: str) -> Iterator[Found]:
    """The entries that a path without braces names from `current`, in order. Raises CommandError if there are none."""
    wanted = _normalised(current, pattern)
    is_found = False
    for path, node in walk(tree, wanted) if pattern else ():
        if pattern.endswith("/") and isinstance(node, File):
            continue
        is_found = True
        yield Found(path, node, _shown(path, current, is_absolute=pattern.startswith("/")))
    if not is_found:
        reason = "not a directory" if _meets_file(tree, wanted) else "no such file or directory"
        raise CommandError(f"{printable(pattern) or repr(pattern)}: {reason}")


def _normalised(current: Path, pattern: str) -> Path:
    names = [] if pattern.startswith("/") else list(current)
    for name in pattern.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return tuple(names)


def _meets_file(tree: Directory, wanted: Path) -> bool:
    """Whether a file is where the path, taken literally, needs a directory."""
    node: Node | None = tree
    for name in wanted:
        if node is None or isinstance(node, File):
            break
        node = node.entry(name)
    return isinstance(node, File)


def _absolute(path: Path) -> str:
    return "/" + "/".join(path)


def _shown(path: Path, current: Path, *, is_absolute: bool) -> str:
    if is_absolute or not current or path[: len(current)] != current:
        return _absolute(path)
    return "/".join(path[len(current) :]) or "."


# --- the shell --------------------------------------------------------------------------------------------------------


class MetadataShell:
    """A current directory, and the commands. Output is passed to `say`, errors to `on_error`, line by line."""

    def __init__(self, source: Source, say: Callable[[str], None], on_error: Callable[[str], None]) -> None:
        self._source = source
        self._say = say
        self._on_error = on_error
        self._current: Path = ()
        self._command = ""
        self._is_well = True
        self.is_done = False
        """Whether the user has asked to exit."""

    @property
    def current_directory(self) -> str:
        """The path of the current directory."""
        return _absolute(self._current)

    def run_line(self, line: str) -> bool:
        """Run a line; an empty one does nothing. Returns and raises as `run` does."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            self._on_error(f"{printable(line.strip())}: {str(error).lower()}")
            return False
        return self.run(words) if words else True

    def run(self, words: Sequence[str]) -> bool:
        """Run a command; returns whether all of it succeeded. If not, `on_error` was called with the reason.

        Raises StorageError if the metadata cannot be read.
        """
        self._command, self._is_well = printable(words[0]), True
        command = COMMANDS.get(words[0])
        if command is None:
            self._fail("no such command; see help")
        else:
            try:
                command.run(self, _given(command, words[1:]))
            except CommandError as error:
                self._fail(str(error))
        return self._is_well

    def entries_below(self, path: str) -> Generator[tuple[str, Node]]:
        """The entries of the directory at `path`, none if there is no such directory. Raises as `run` does."""
        with self._reading() as tree:
            for _, node in walk(tree, _normalised(self._current, path)):
                if not isinstance(node, File):
                    yield from node.entries()

    @contextmanager
    def _reading(self) -> Iterator[Directory]:
        with self._source.reading() as connection:
            yield root(connection)

    def _fail(self, problem: str) -> None:
        self._is_well = False
        self._on_error(f"{self._command}: {problem}")

    def _found(self, tree: Directory, given: Given) -> Iterator[Found]:
        """The files and directories that the given paths name, by default the current directory; a path that names none
        fails.
        """
        for word in given.words or (".",):
            for pattern in alternatives(word):
                try:
                    yield from find_paths(tree, self._current, pattern)
                except CommandError as error:
                    self._fail(str(error))

    def _ls(self, given: Given) -> None:
        """List directories. With -l each line begins with d and the number of entries, or - and the bytes of a file."""
        line = _long if "-l" in given.options else _short
        with self._reading() as tree:
            found = list(self._found(tree, given))
            files = [(at.shown, at.node) for at in found if isinstance(at.node, File)]
            for shown, file in files:
                self._say(line(shown, file))
            is_first = not files
            for _, node, shown in found:
                if isinstance(node, File):
                    continue
                if len(found) > 1:
                    self._say(f"{shown}:" if is_first else f"\n{shown}:")
                is_first = False
                for name, below in node.entries():
                    self._say(line(name, below))

    def _cat(self, given: Given) -> None:
        """Print files."""
        if not given.words:
            raise CommandError("name a file")
        with self._reading() as tree:
            for _, node, shown in self._found(tree, given):
                if isinstance(node, File):
                    self._say(node.read())
                else:
                    self._fail(f"{shown}: is a directory")

    def _tree(self, given: Given) -> None:
        """Print all that is below a directory. At most COUNT entries of each directory, else 20, and the number left
        out.
        """
        limit = _positive(given.options.get("-n", str(TREE_ENTRIES)))
        with self._reading() as tree:
            for _, node, shown in self._found(tree, given):
                self._say(shown)
                self._branches(node, "  ", limit)

    def _branches(self, node: Node, indent: str, limit: int) -> None:
        if isinstance(node, File):
            return
        for name, below in islice(node.entries(), limit):
            self._say(indent + name + ("" if isinstance(below, File) else "/"))
            self._branches(below, indent + "  ", limit)
        left_out = node.count() - limit
        if left_out > 0:
            self._say(f"{indent}... {left_out:,} more")

    def _find(self, given: Given) -> None:
        """Print the path of all that is below a directory. With -name, only of names that match."""
        wanted = [re.compile(fnmatch.translate(text)) for text in alternatives(given.options.get("-name", "*"))]
        with self._reading() as tree:
            for path, node, shown in self._found(tree, given):
                self._search(path[-1] if path else "/", node, shown, wanted)

    def _search(self, name: str, node: Node, shown: str, wanted: Sequence[re.Pattern[str]]) -> None:
        if any(pattern.match(name) for pattern in wanted):
            self._say(shown)
        if not isinstance(node, File):
            above = "" if shown == "." else f"{shown.rstrip('/')}/"
            for below, entry in node.entries():
                self._search(below, entry, above + below, wanted)

    def _cd(self, given: Given) -> None:
        """Change the current directory. Without PATH, to the root."""
        with self._reading() as tree:
            found = list(islice(self._found(tree, given if given.words else Given({}, ("/",))), 2))
            if len(found) > 1:
                raise CommandError(f"{printable(given.words[0])}: stands for more than one path")
            for path, node, shown in found:
                if isinstance(node, File):
                    raise CommandError(f"{shown}: not a directory")
                self._current = path

    def _pwd(self, given: Given) -> None:
        """Print the current directory."""
        self._say(self.current_directory)

    def _man(self, given: Given) -> None:
        """Explain a command. Without COMMAND, name them all."""
        for name in given.words:
            if name not in COMMANDS:
                raise CommandError(f"{printable(name)}: no such command")
            self._say(f"{COMMANDS[name].usage}\n    {COMMANDS[name].explanation}")
        if not given.words:
            width = max(len(command.usage) for command in COMMANDS.values()) + 2
            for command in COMMANDS.values():
                self._say(f"{command.usage:<{width}}{command.explanation.partition('. ')[0].rstrip('.')}")

    def _exit(self, given: Given) -> None:
        """Leave the shell, as does the end of the input."""
        self.is_done = True


class Command(NamedTuple):
    """A command of the shell; the docstring of its function explains it."""

    usage: str
    run: Callable[[MetadataShell, Given], None]
    words_max: int | None = 0
    options: Mapping[str, bool] = MappingProxyType({})
    """Whether each takes a value."""

    @property
    def explanation(self) -> str:
        """What it does; the first sentence is its summary."""
        return " ".join((self.run.__doc__ or "").split())


COMMANDS: Final[Mapping[str, Command]] = {
    "ls": Command("ls [-l] [PATH...]", MetadataShell._ls, None, {"-l": False}),
    "cat": Command("cat PATH...", MetadataShell._cat, None),
    "tree": Command("tree [-n COUNT] [PATH]", MetadataShell._tree, 1, {"-n": True}),
    "find": Command("find [PATH] [-name GLOB]", MetadataShell._find, 1, {"-name": True}),
    "cd": Command("cd [PATH]", MetadataShell._cd, 1),
    "pwd": Command("pwd", MetadataShell._pwd),
    "man": Command("man [COMMAND]", MetadataShell._man, 1),
    "help": Command("help [COMMAND]", MetadataShell._man, 1),
    "exit": Command("exit", MetadataShell._exit),
    "quit": Command("quit", MetadataShell._exit),
}


def _given(command: Command, arguments: Sequence[str]) -> Given:
    """The options of a command and its other words. Raises CommandError for any that it does not accept."""
    options: dict[str, str] = {}
    words: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            words += left
        elif argument in command.options:
            value = next(left, None) if command.options[argument] else ""
            if value is None:
                raise CommandError(f"{argument} needs a value; usage: {command.usage}")
            options[argument] = value
        elif argument.startswith("-"):
            raise CommandError(f"{printable(argument)}: no such option; usage: {command.usage}")
        else:
            words.append(argument)
    if command.words_max is not None and len(words) > command.words_max:
        raise CommandError(f"{printable(words[command.words_max])}: too many words; usage: {command.usage}")
    return Given(options, words)


def _positive(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise CommandError(f"{printable(text)}: not a number from 1 to 999999999")
    return int(text)


def _short(name: str, node: Node) -> str:
    return name


def _long(name: str, node: Node) -> str:
    kind, size = ("-", len(node.read().encode())) if isinstance(node, File) else ("d", node.count())
    return f"{kind} {size:>10} {name}"
