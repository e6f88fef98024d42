"""A soak: steady load for long, then faults, while the resources that every node uses are checked against bounds.

`kraftlog chaos soak --minutes 10`. The bounds are in `kraftlog.chaos.soak.limits`, and in words in docs/chaos.md.
"""
