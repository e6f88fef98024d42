"""What clients of registers were told, and whether one order of their operations explains it."""
