"""`python -m kraftlog`, and the entry point of the command `kraftlog`: the command line, if its packages are there."""

import sys

from kraftbase.interpreter import start_sooner
from kraftlog.process.installation import foreign_package
from kraftlog.process.quick_start import import_structlog


def run() -> None:
    """Run the command line of this process and exit."""
    reason = foreign_package()
    if reason is not None:
        sys.exit(f"error: {reason}")
    start_sooner()
    import_structlog()
    from kraftlog.cli import main

    main.run()


if __name__ == "__main__":
    run()
