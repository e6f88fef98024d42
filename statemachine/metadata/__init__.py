"""Queries on the metadata that are answered the same way over any view of it."""
