"""A broker's partition logs, in Kafka's file formats, over the FileSystem port.

    log_manager        the broker's log directories, and which directory each partition is in
    set_aside          logs that are kept but not used: strays, second copies, damaged logs
      log_directory    one directory: its lock, identity and logs; offline when its disk fails
        directory_findings, log_removal    which logs are damaged, missing or strays; how logs are removed
        group_commit   one flush for all appends of a directory that wait for the disk
        partition_log  one partition: appends, reads, truncation, retention
          loading, recovery    checks at startup: torn tails, damage, indexes to rebuild
          segment, index_file  a segment's files; file_handles keeps few of them open
          producer_states, leader_epochs, appends, retention    pure: the state of a log, and decisions about it
            formats    bytes and names of files, pure

Each module imports only modules further down. Everything is synchronous and runs in one thread, except
`PendingFlush.run`, which may run in another one. Batches are opaque: the log reads their headers and checks their CRC,
in pieces. It reads records only where a rule needs them: those of produced batches, of control batches, and of the one
batch in which a timestamp is searched for.
"""
