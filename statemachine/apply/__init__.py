"""The state machine: it applies committed records, and notifies its subscribers."""
