"""`python -m kraftlog.bench.broker.loads NAME FIELDS`: carry out one load, and print its figures as JSON."""

from __future__ import annotations

import json
import sys

from kraftbase.errors import ApiError
from kraftlog.bench.broker.loads.catalogue import load_of


def main() -> int:
    """Carry out the load and return the exit code. An error is the last line of standard error."""
    name, fields = sys.argv[1:]
    try:
        figures = load_of(name, json.loads(fields)).run()
    except ApiError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
