"""The state machine: it applies what is committed, and notifies its subscribers."""
