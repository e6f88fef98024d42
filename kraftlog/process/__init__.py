"""A node as a process: its parts, its logs, its limits."""
