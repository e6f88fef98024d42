"""The loads of the client. Each load runs in a separate process, and is the same program against both brokers."""
