"""Checks that Python finds kraftlog's packages: a user's file or another distribution may have the same names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

OWN_MODULES: Final = {"raft": "node.py", "snapshot": "store.py", "statemachine": "store/store.py"}
"""For each package whose name other projects use, too, a module that identifies kraftlog's package."""


def foreign_package() -> str | None:
    """Return an error with a remedy if one of the packages is not kraftlog's, else None. Imports none of them."""
    for package, module in OWN_MODULES.items():
        found = find_spec(package)
        if found is None:
            return f"kraftlog's package {package!r} is not installed"
        places = [found.origin] if found.origin is not None else list(found.submodule_search_locations or ())
        if found.origin is None or not (Path(found.origin).parent / module).exists():
            return (
                f"the package {package!r} that Python finds is not kraftlog's but {places[0]}; rename that if it"
                " is yours; if it is from another distribution, install kraftlog in a virtual environment of its own"
            )
    return None
