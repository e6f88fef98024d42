"""The command line: one module per group of commands, each of which imports heavy packages only when it runs."""
