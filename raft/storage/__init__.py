"""Durable storage: batches, segments, the quorum state and the data directory, over the FileSystem protocol."""
