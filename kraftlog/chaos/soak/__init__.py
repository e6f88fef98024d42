"""A soak: steady load for a long time, then faults, while the resources of every node are checked against bounds.

`kraftlog chaos soak --minutes 10`. `kraftlog.chaos.soak.limits` has the bounds, and docs/chaos.md describes them.
"""
