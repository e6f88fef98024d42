"""What can be done with files alone: verify, dump, browse, restore."""
