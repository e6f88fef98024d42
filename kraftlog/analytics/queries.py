"""The questions that the report answers, as SQL over the exported log.

The queries replay the log: the last record of a partition, a broker or a config is its state, and the removal of a
topic removes its partitions and configs, as in the state machine. A topic that is created again under the same name has
another id and starts empty. `{log}` stands for the log; the rest is plain Spark SQL. Sorting is left to Python where it
can be, since Spark runs another job for an ORDER BY.
"""

from __future__ import annotations

from typing import Final

STATE_COLUMNS: Final = (
    "offset",
    "epoch",
    "timestamp",
    "record_type",
    "topic_id",
    "topic",
    "partition",
    "leader",
    "replicas",
    "broker_id",
    "resource_type",
    "resource_name",
    "config_name",
    "config_value",
)
"""The columns that these queries read."""

_TOPICS: Final = """
WITH topics AS (
    SELECT topic_id,
           max(topic) AS topic,
           max(offset) FILTER (WHERE record_type = 'REMOVE_TOPIC_RECORD') AS removed_offset,
           size(collect_set(partition)) AS partitions
    FROM {log} WHERE record_type IN ('TOPIC_RECORD', 'PARTITION_RECORD', 'REMOVE_TOPIC_RECORD')
    GROUP BY topic_id
)
"""

COUNTS: Final = (
    _TOPICS  # noqa: S608 - joins constants
    + """
, configs AS (
    SELECT resource_type, resource_name, config_name,
           max(offset) AS offset,
           max_by(config_value, offset) IS NOT NULL AS is_set
    FROM {log} WHERE record_type = 'CONFIG_RECORD'
    GROUP BY resource_type, resource_name, config_name
),
removed_names AS (
    SELECT topic, max(removed_offset) AS removed_offset FROM topics WHERE removed_offset IS NOT NULL GROUP BY topic
)
SELECT live.topics, live.partitions, registered.brokers, configured.configs
FROM (
    SELECT count(*) AS topics, coalesce(sum(partitions), 0) AS partitions FROM topics WHERE removed_offset IS NULL
) live
CROSS JOIN (
    SELECT count_if(last_type = 'REGISTER_BROKER_RECORD') AS brokers
    FROM (SELECT max_by(record_type, offset) AS last_type FROM {log}
          WHERE record_type IN ('REGISTER_BROKER_RECORD', 'UNREGISTER_BROKER_RECORD') GROUP BY broker_id)
) registered
CROSS JOIN (
    SELECT count(*) AS configs
    FROM configs LEFT JOIN removed_names ON resource_type = 'TOPIC' AND resource_name = removed_names.topic
    WHERE is_set AND configs.offset > coalesce(removed_offset, -1)
) configured
"""
)

BROKERS: Final = (
    _TOPICS  # noqa: S608 - joins constants
    + """
, partitions AS (
    SELECT topic_id, partition,
           max_by(leader, offset) FILTER (WHERE leader IS NOT NULL) AS leader,
           max_by(replicas, offset) FILTER (WHERE replicas IS NOT NULL) AS replicas
    FROM {log} WHERE record_type IN ('PARTITION_RECORD', 'PARTITION_CHANGE_RECORD')
    GROUP BY topic_id, partition
),
held AS (
    SELECT explode(replicas) AS broker_id, topic_id, leader
    FROM partitions LEFT ANTI JOIN (SELECT topic_id FROM topics WHERE removed_offset IS NOT NULL) USING (topic_id)
    UNION ALL
    SELECT broker_id, NULL, NULL FROM {log} WHERE record_type = 'REGISTER_BROKER_RECORD'
)
SELECT broker_id,
       size(collect_set(topic_id)) AS topics,
       count(topic_id) AS partitions,
       count_if(leader = broker_id) AS led
FROM held
GROUP BY broker_id
"""
)

RECORDS_OVER_TIME: Final = """
SELECT unix_millis(date_trunc({bucket}, timestamp)) AS start_ms, record_type, count(*) AS records
FROM {log}
GROUP BY ALL
"""

LEADERS: Final = """
SELECT leader, epoch, offset AS start_offset, unix_millis(timestamp) AS since_ms,
       lead(offset) OVER (ORDER BY offset) AS end_offset,
       lead(unix_millis(timestamp)) OVER (ORDER BY offset) AS until_ms
FROM {log} WHERE record_type = 'LEADER_CHANGE'
ORDER BY offset DESC LIMIT {limit}
"""
