"""Whether our packages are those that Python finds: a user's file or another distribution may have their names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

OWN_MODULES: Final = {"raft": "node.py", "snapshot": "store.py", "statemachine": "store/store.py"}
"""For each package whose name others use too, a module that identifies ours."""


def foreign_package() -> str | None:
    """What is wrong, with what to do, if one of the packages is not ours; None if all are. It imports none of them."""
    for package, module in OWN_MODULES.items():
        found = find_spec(package)
        if found is None:
            return f"kraftlog's package {package!r} is not installed"
        places = [found.origin] if found.origin is not None else list(found.submodule_search_locations or ())
        if found.origin is None or not (Path(found.origin).parent / module).exists():
            return (
                f"the package {package!r} that Python finds is not kraftlog's but {places[0]}; rename that if it is"
                " yours; if another distribution has it, install kraftlog in a virtual environment of its own"
            )
    return None
