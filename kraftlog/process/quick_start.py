"""Makes a command of the command line start sooner."""

from __future__ import annotations

import sys


def import_structlog() -> None:
    """Import structlog without rich, with which it could show tracebacks: we show them without, in `logs`.

    That takes it 0.08 s instead of 0.2 of a command's 0.45; what shows tables imports of rich what it needs, later.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # an import of it fails, which structlog expects
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
