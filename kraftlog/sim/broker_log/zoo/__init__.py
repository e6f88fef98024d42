"""Bugs of a broker's log, which the checkers of this world must catch."""
