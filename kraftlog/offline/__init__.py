"""Work on files alone: verify, dump, browse, restore."""
