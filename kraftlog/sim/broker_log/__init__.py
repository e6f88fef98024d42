"""A broker's log and its handlers on simulated disks: `kraftlog sim --world broker-log`.

Production code runs in it: the log manager and all below it, the partitions, the handlers of Produce, Fetch,
ListOffsets and DeleteRecords, and the conversation over a connection. The disk, the clocks, the process, the metadata
log and the clients are simulated.

- `checkers`: the rules, and checkers that share no code with what they check, with their own reader of Kafka's files
- `parameters`: what a seed draws
- `metadata`: the existing topics, in the tables of a broker's state machine
- `process`: one life of a broker's process, in steps, and its runtime
- `broker`: the production code in a life; `described`: its replicas in lines
- `world`: a disk, a broker, its promises, and the checks
- `clients`, `transactions`: producers, readers, an administrator; a producer of transactions
- `byte_client`: a client that sends and receives bytes; `broker_end`: the broker's end of its connection
- `faults`: the faults of this world
- `marks`: what must happen in a sweep
- `run`: one run from start to end
- `zoo`: bugs that the checkers must catch
- `definition`: all of these, in the form that the engine runs
"""
