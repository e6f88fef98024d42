"""What the client does: each load is a program of its own process, the same against both brokers."""
