"""The state machine: it applies what is committed, and lets others know."""
