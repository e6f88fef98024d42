"""A broker's decisions from its start to its end, without an event loop: the process and the simulator run it.

broker_shell             the order of the start; opening and ending are its first and its last steps
broker_states            the states of a broker, and their transitions
parts                    all parts of a broker, made together
membership               registration and heartbeats, over attempts and membership_messages
membership_states        the states of a membership, and their transitions
directory_assignments    in which log directory each replica is
controller_requests      other requests to the controller
maintenance              periodic work, in slices (repeated)
ports                    what the shell needs from its environment
"""
