"""A soak: steady load for long, then faults, while what every node takes from its machine is held against bounds.

`kraftlog chaos soak --minutes 10`. The bounds are in `kraftlog.chaos.soak.limits`, and in words in docs/chaos.md.
"""
