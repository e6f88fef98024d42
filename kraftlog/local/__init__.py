"""Clusters on this machine: their directories and their processes."""
