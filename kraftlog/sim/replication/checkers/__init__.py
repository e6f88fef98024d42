"""The rules of replication, and checkers that share no code with what they check."""
