"""Replication between brokers: what a leader knows of its followers, and how a follower follows.

Pure, with time as an argument: `follower_progress`, `leading`. Over ports for time and the controller: `isr_changes`.
"""
