"""What the repository has: files, and the names that its modules define. For the tests of pages that name them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.paths import ROOT


@cache
def is_there(path: str) -> bool:
    """Whether the repository has that file or directory; `*` stands for a part of a name."""
    if path.startswith(("/", "..")):
        return False
    return any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


@cache
def names_in(path: Path) -> frozenset[str]:
    """What a module defines, not what it imports: `name`, and `Class.name` for what classes have."""
    return frozenset(_names_of(ast.parse(path.read_text()).body, ""))


def _names_of(body: list[ast.stmt], prefix: str) -> list[str]:
    names: list[str] = []
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.append(prefix + node.name)
                if node.name == "__init__":
                    names += [prefix + name for name in _set_on_self(node)]
            case ast.ClassDef():
                names.append(prefix + node.name)
                names += _names_of(node.body, f"{prefix}{node.name}.")
            case ast.Assign():
                names += [prefix + target.id for target in node.targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.append(prefix + name)
    return names


def _set_on_self(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    ]


def has_dotted(name: str) -> bool:
    """Whether `name`, such as raft.listener.Listener, is a package, a module, or something that a module defines.

    A package may also hand on what it imports.
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        stem, rest = ROOT.joinpath(*parts[:length]), ".".join(parts[length:])
        module = stem.with_suffix(".py") if stem.with_suffix(".py").is_file() else stem / "__init__.py"
        if module.is_file():
            is_handed_on = module.name == "__init__.py" and re.search(rf"\b{re.escape(rest)}\b", module.read_text())
            return not rest or rest in names_in(module) or bool(is_handed_on)
    return False
