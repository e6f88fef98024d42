"""What the commands do, without their options and tables."""
