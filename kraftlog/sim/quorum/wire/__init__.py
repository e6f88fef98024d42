"""What happens to messages between two nodes."""
