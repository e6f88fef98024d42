"""Replication between brokers: a leader's state of its followers, and the followers' fetchers.

Pure, with time as an argument: `follower_progress`, `leading`. Over ports for time and the controller: `isr_changes`.
"""
