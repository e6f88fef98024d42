"""Chaos on real processes: nodes are killed, paused, cut off and run out of disk space; clients record all answers.

`kraftlog chaos --minutes 10 --seed 1`. The seed decides which fault starts when, for how long and on which node;
it does not decide how the processes and the machine interleave.
"""
