"""What must hold of a broker's logs. It imports nothing of the broker, and reads files by itself."""
