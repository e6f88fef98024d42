"""A soak of data brokers: clients work steadily for long, then amid faults, while resources are compared with bounds.

`kraftlog chaos soak --brokers --minutes 10`. The bounds are in `kraftlog.chaos.soak.brokers.limits`, and in words in
docs/chaos.md.
"""
