"""What a broker decides from its start to its end, without an event loop: the process and the simulator run it.

membership      registration and heartbeats, over attempts and membership_messages
states          which state may follow which
ports           what it needs of the outside
"""
