"""The faults: each is one function that breaks something in a world and schedules its repair."""
