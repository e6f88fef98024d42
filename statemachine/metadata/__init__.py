"""Questions about the metadata that are answered the same way over any view of it."""
