"""Bugs of a broker's log, which this world must catch."""
