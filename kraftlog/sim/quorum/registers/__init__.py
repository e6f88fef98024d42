"""The answers to clients of registers, and whether one order of their operations explains them."""
