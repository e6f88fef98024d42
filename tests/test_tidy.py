"""The house style, as far as a linter does not know it."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kraftbase.errors import ErrorCode

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kraftbase", "raft", "snapshot", "statemachine", "pyspark_kraftlog", "kraftlog", "examples", "tools")
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if path.name != "__init__.py")
TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "proto/**/*.proto", "Makefile", ".ci/run", "pyproject.toml")
    for path in ROOT.glob(pattern)
)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text_of(path))))


@pytest.fixture(scope="module", autouse=True)
def forgotten_afterwards() -> Iterator[None]:
    """The trees of all files are a third of a gigabyte. Looks for garbage among them took twice as long as the rest."""
    gc.disable()
    yield
    nodes_of.cache_clear()
    gc.enable()


# Each check is one test that names all files which do not hold: a test for each file costs more than its look.


def too_long_or_nameless(path: Path) -> Iterator[str]:
    if len(text_of(path).splitlines()) > MODULE_LINES_MAX:
        yield f"{relative(path)} has more than {MODULE_LINES_MAX} lines"
    module = nodes_of(path)[0]
    if isinstance(module, ast.Module) and not ast.get_docstring(module):
        yield f"{relative(path)} has no docstring"


def test_a_module_is_short_and_says_what_it_is_for() -> None:
    assert [problem for path in [*SOURCES, *TESTS] for problem in too_long_or_nameless(path)] == []


def long_functions(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{relative(path)}: {node.name} has {lines} lines"


def test_a_function_fits_a_screen() -> None:
    assert [problem for path in [*SOURCES, *TESTS] for problem in long_functions(path)] == []


def test_a_package_of_tests_lies_in_packages_all_the_way() -> None:
    """pytest imports any other by its last name alone: `offline/kafka` was in the way of the library `kafka`."""
    packages = {path.parent for path in (ROOT / "tests").rglob("__init__.py")}
    assert {path for path in packages if path.name != "tests" and path.parent not in packages} == set()


def error_codes_named_in(paths: Iterable[Path]) -> set[str]:
    """The error codes that these files name."""
    return {name for path in paths for name in re.findall(r"\bErrorCode\.([A-Z0-9_]+)", text_of(path))}


def test_every_error_code_is_used_and_tested() -> None:
    """An error code that no test names may be answered where it is wrong."""
    codes = {code.name for code in ErrorCode}
    assert codes - error_codes_named_in(SOURCES) == set()
    assert codes - error_codes_named_in(path for path in TESTS if path.name.startswith("test_")) == set()


def matches(pattern: str, paths: Iterable[Path]) -> list[str]:
    """Where a pattern is found."""
    return [f"{relative(path)}: {found[0]}" for path in paths if (found := re.search(pattern, text_of(path)))]


def unsafe(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Assert):
            yield f"{relative(path)}:{node.lineno}: assert disappears under -O; use kraftbase.checks.check"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            if names == ["dumps", "marshal"]:
                continue  # to hash what it makes; nothing is ever loaded
            if {"pickle", "marshal", "shelve"} & set(names):
                yield f"{relative(path)}:{node.lineno}: what is loaded may run"


def test_nothing_is_left_for_later_and_nothing_is_unsafe() -> None:
    assert matches(r"\b(TODO|FIXME|XXX|HACK)\b", SOURCES) == []
    assert [problem for path in SOURCES for problem in unsafe(path)] == []


def test_the_words_are_kafkas() -> None:
    """An epoch is no term, an observer no learner, and nobody appends entries."""
    pattern = r"\b(append_entries|AppendEntries|learner|current_term|last_log_index)\b"
    assert matches(pattern, [*SOURCES, *TEXTS]) == []


EDITED: Final = re.compile(
    r"(raft|snapshot|statemachine|kraftbase|proto)/|kraftlog/(admin|analytics|bench|chaos|cli|clients|commands|config|"
    r"controller|demo|kafka|local|offline|process|replicas|storage|telemetry)/"
)
"""Where the words below have been replaced."""


def test_the_words_of_docs_hacking_are_kept() -> None:
    """A program receives an error, and is not told of it (docs/HACKING.md, Plain English)."""
    pattern = r"\b(?i:anew|any more|nobody|whoever|(?:is|are|was|be) told|errands?)\b"
    assert matches(pattern, [path for path in SOURCES if EDITED.match(relative(path))]) == []


def test_the_core_never_iterates_a_set() -> None:
    paths = sorted((ROOT / "raft" / "core").glob("*.py"))
    assert paths
    iterations = [node for path in paths for node in nodes_of(path) if isinstance(node, ast.For | ast.comprehension)]
    assert [ast.unparse(node.iter) for node in iterations if isinstance(node.iter, ast.Set | ast.SetComp)] == []


def looks_into_a_replica(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and node.attr in ("_environment", "_replica_state", "_output"):
            yield f"{relative(path)}:{node.lineno} reads {ast.unparse(node)}; add what you need to ReplicaView"


def test_only_the_core_and_its_own_tests_look_into_a_replica() -> None:
    """All others read what `raft/core/replica_view.py` has."""
    others = [path for path in [*SOURCES, *TESTS] if not re.match(r"(tests/)?raft/core/", relative(path))]
    assert [problem for path in others for problem in looks_into_a_replica(path)] == []


@pytest.mark.parametrize(
    ("call", "module"),
    [
        ("insecure_channel(", "raft/rpc/channels.py"),
        ("add_insecure_port(", "raft/rpc/listening.py"),
        ("grpc.aio.server(", "raft/host.py"),
    ],
)
def test_channels_and_servers_are_made_in_one_place(call: str, module: str) -> None:
    assert [relative(path) for path in SOURCES if call in path.read_text()] == [module]
