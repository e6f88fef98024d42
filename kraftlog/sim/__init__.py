"""A deterministic simulator: whole clusters in one process, from one seed.

Production code runs in it: the core, the shell, the log, the quorum state, the data directory and the state machine's
tables. Simulated are what surrounds them: network, disk, clocks, processes and clients (docs/faults.md).
"""
