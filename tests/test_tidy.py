"""The house style, as far as a linter does not know it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=relative)
def test_a_module_is_short_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    assert ast.get_docstring(ast.parse(text)), "the module has no docstring"


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=relative)
def test_a_function_fits_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


def test_a_package_of_tests_lies_in_packages_all_the_way() -> None:
    """pytest imports any other by its last name alone: `offline/kafka` was in the way of the library `kafka`."""
    packages = {path.parent for path in (ROOT / "tests").rglob("__init__.py")}
    assert {path for path in packages if path.name != "tests" and path.parent not in packages} == set()


def test_every_error_code_is_used() -> None:
    """A whole run of the tests fails for one that nothing answers any more: here it is told at once."""
    named = {name for path in SOURCES for name in re.findall(r"\bErrorCode\.([A-Z_]+)", path.read_text())}
    assert {code.name for code in ErrorCode} - named == set()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nothing_is_left_for_later_and_nothing_is_unsafe(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert), "assert disappears under -O; use kraftbase.checks.check"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            if names == ["dumps", "marshal"]:
                continue  # to hash what it makes; nothing is ever loaded
            assert not {"pickle", "marshal", "shelve"} & set(names)


@pytest.mark.parametrize("path", [*SOURCES, *TEXTS], ids=relative)
def test_the_words_are_kafkas(path: Path) -> None:
    """An epoch is no term, an observer no learner, and nobody appends entries."""
    assert not re.search(r"\b(append_entries|AppendEntries|learner|current_term|last_log_index)\b", path.read_text())


@pytest.mark.parametrize("path", sorted((ROOT / "raft" / "core").glob("*.py")), ids=relative)
def test_the_core_never_iterates_a_set(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        iterated = [node.iter] if isinstance(node, ast.For | ast.comprehension) else []
        for expression in iterated:
            assert not isinstance(expression, ast.Set | ast.SetComp)


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=relative)
def test_only_the_core_and_its_own_tests_look_into_a_replica(path: Path) -> None:
    """All others read what `raft/core/replica_view.py` has."""
    if re.match(r"(tests/)?raft/core/", relative(path)):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in ("_environment", "_replica_state", "_output"):
            raise AssertionError(f"line {node.lineno} reads {ast.unparse(node)}; add what you need to ReplicaView")


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
