"""`python -m kraftlog` is the command line."""

from kraftlog.cli.main import run

run()
