"""A soak of data brokers: steady load for a long time, then faults, while resources are checked against bounds.

`kraftlog chaos soak --brokers --minutes 10`. `kraftlog.chaos.soak.brokers.limits` has the bounds, and docs/chaos.md
describes them.
"""
