"""The command line: one module per group of commands, each importing what is heavy only when it runs."""
