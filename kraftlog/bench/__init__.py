"""Benchmarks: each starts its own cluster of real processes, measures one thing, and reports the machine."""
