"""A broker's log and its handlers on simulated disks: `kraftlog sim --world broker-log`.

Production code runs in it: the log manager with all below it, the partitions, and the handlers of Produce, Fetch,
ListOffsets and DeleteRecords, and what is said over a connection. Simulated are the disk, the clocks, the process, the
metadata log and the clients.

- `judges`: what must hold, by code that shares nothing with what it judges: it has a reader of Kafka's files of its own
- `parameters`: what a seed draws
- `metadata`: the topics that there are, in the tables of a broker's state machine
- `process`: one life of a broker's process, step by step, and what it runs in
- `broker`: the production code in a life; `described`: its replicas in lines
- `world`: a disk, a broker, promises; what is asked of the broker on the way
- `clients`, `transactions`: producers, readers, an administrator; a producer of transactions
- `byte_client`: a client that talks bytes; `broker_end`: the broker's end of its connection, over the `Conversation`
- `faults`: what may happen to a world
- `marks`: what must happen in a sweep
- `run`: one run from start to end
- `zoo`: bugs that the judges must catch
- `definition`: all of that, as the engine runs it
"""
