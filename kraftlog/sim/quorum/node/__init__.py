"""One machine and the production code that runs on it."""
