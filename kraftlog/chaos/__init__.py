"""Chaos on real processes: nodes are killed, paused, cut off and run out of disk while clients record every answer.

`kraftlog chaos --minutes 10 --seed 1`. The seed decides which fault starts when, for how long and on which node;
it does not decide how the processes and the machine interleave.
"""
