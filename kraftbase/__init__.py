"""What everything else stands on: errors, ids, checks, files. It imports nothing of the project."""
