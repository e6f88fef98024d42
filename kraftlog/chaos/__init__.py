"""Chaos on real processes: nodes are killed, paused, cut off and starved of disk while clients remember every answer.

`kraftlog chaos --minutes 10 --seed 1`. The seed decides which fault comes when, for how long and to whom; how the
processes and the machine interleave it does not.
"""
