"""The rules of a broker's logs and their checkers, which import nothing of the broker and read files by themselves."""
