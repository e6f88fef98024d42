"""Brokers that replicate: `kraftlog sim --world replication`.

Production code runs in it, on each of three to five brokers: the log manager with all below it, partitions, leaders and
followers with their fetchers, the handlers that clients and followers reach; and, in one place that no fault reaches,
the controller. Simulated are disks, clocks, processes, the network, the way of the metadata, and the clients.

- `judges`: the rules, and what checks them, by code that shares nothing with what it judges
- `parameters`: what a seed draws
- `metadata_log`, `controller`: the production controller over a log and tables of its own
- `wire`: requests and answers over a network that loses and delays
- `broker`: the production code in one life
- `machine`: a disk, processes one after the other, the life with the controller
- `metadata`: topics and partitions as they are committed
- `fetches`, `court`: what is shown to the judges
- `world`: all of it
- `clients`, `administrator`: producers, readers; elections, reassignments, topics
- `faults`: what may happen to a world
- `marks`: what must happen in a sweep
- `run`: one run from start to end
- `zoo`: bugs that the judges must catch
- `definition`: all of that, as the engine runs it
"""
