"""Whether this installation is whole: another distribution may have overwritten our packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

OWN_MODULES: Final = {"raft": "node.py", "snapshot": "store.py", "statemachine": "store/store.py"}
"""For each package whose name other distributions use too, a module that identifies ours."""


def overwritten_package() -> str | None:
    """The name of a package that is not ours, None if all are ours."""
    for package, module in OWN_MODULES.items():
        found = find_spec(package)
        if found is None or found.origin is None or not (Path(found.origin).parent / module).exists():
            return package
    return None
