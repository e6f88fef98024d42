"""A node's answers to reads of the metadata."""
