"""What a broker decides from its start to its end, without an event loop: the process and the simulator run it.

broker_shell             the order of the start; opening and ending are its first step and its last ones
broker_states            which of its states may follow which
parts                    all that a broker consists of, made in one go
membership               registration and heartbeats, over attempts and membership_messages
membership_states        which state of a membership may follow which
directory_assignments    in which log directory each replica is
controller_requests      what else the controller is asked for
maintenance              what is done from time to time, in slices of repeated work
ports                    what it needs of the outside
"""
