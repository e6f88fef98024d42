"""`python -m kraftlog`, and the entry point of the command `kraftlog`: the command line, if its packages are there."""

import sys

from kraftbase.interpreter import start_sooner
from kraftlog.process.installation import overwritten_package
from kraftlog.process.quick_start import import_structlog


def run() -> None:
    """Run the command line of this process and exit."""
    foreign = overwritten_package()
    if foreign is not None:
        sys.exit(
            f"error: the package {foreign!r} that Python finds is not kraftlog's but another distribution's; install"
            " kraftlog in a virtual environment of its own"
        )
    start_sooner()
    import_structlog()
    from kraftlog.cli import main

    main.run()


if __name__ == "__main__":
    run()
