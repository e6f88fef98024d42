"""What a node answers when it is asked about the metadata."""
