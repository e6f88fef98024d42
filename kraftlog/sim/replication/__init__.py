"""Brokers that replicate: `kraftlog sim --world replication`.

Three to five brokers run production code: the log manager and all below it, partitions, leaders and followers with
their fetchers, and the request handlers. The production controller runs where no fault reaches it. Disks, clocks,
processes, the network, the delivery of metadata, and the clients are simulated.

- `checkers`: the rules, and checkers that share no code with what they check
- `parameters`: what a seed draws
- `metadata_log`, `controller`: the production controller over a log and tables of its own
- `wire`: requests and responses over a network that loses and delays messages
- `broker`: the production code in one life
- `machine`: a disk, its processes one after the other, and their dealings with the controller
- `metadata`: the committed topics and partitions
- `fetches`, `checker`: the events that are passed to the checkers
- `world`: brokers, controller and network together
- `clients`, `administrator`: producers, readers; elections, reassignments, topics
- `faults`: the faults of this world
- `marks`: what must happen in a sweep
- `run`: one run from start to end
- `zoo`: bugs that the checkers must catch
- `definition`: all of these, in the form that the engine runs
"""
