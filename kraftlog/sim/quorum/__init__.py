"""The world of a quorum: voters, observers, controllers and their users."""
