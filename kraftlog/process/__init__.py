"""A node as a process: its parts put together, its logs, its limits."""
