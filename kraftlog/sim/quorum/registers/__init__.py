"""The answers to clients of registers, and the checks that one order of operations explains them."""
