"""The base of all other packages: errors, ids, checks, files. It imports nothing of the project."""
