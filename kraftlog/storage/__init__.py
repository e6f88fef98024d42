"""A broker's partition logs, in Kafka's file formats, over the FileSystem port.

    log_manager        the broker's log directories, and in which of them each partition is
    set_aside          logs that are kept, and not used: strays, second copies, damaged ones
      log_directory    one directory: its lock, identity and logs; offline when its disk fails
        directory_findings, log_removal    which logs are damaged, missing or strays; how logs leave
        group_commit   one flush for all appends of a directory that wait for the disk
        partition_log  one partition: appends, reads, truncation, retention
          loading, recovery    what is found at a start: torn tails, damage, indexes to rebuild
          segment, index_file  a segment's files; file_handles keeps few of them open
          producer_states, leader_epochs, appends, retention    pure: what is known of a log, and what is decided
            formats    bytes and names of files, pure

Each imports only from below. Everything is synchronous and for one thread, but for the flushes: what `PendingFlush.run`
does may run in another one. Batches are opaque: their headers are read, and their CRC is, in pieces; records only where
a rule needs them, which is a control batch, and the one batch in which a timestamp is looked for.
"""
