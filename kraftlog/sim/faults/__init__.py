"""The faults: each one function that lets something bad happen to a world, and agrees on when it ends."""
