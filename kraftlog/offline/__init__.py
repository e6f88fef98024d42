"""What can be done with files alone: verify, dump, look at, restore."""
