"""Commands that measure and test."""
