"""Views over the tables for people who query the metadata in SQL: topics by name, one row for one thing (docs/sql.md).

The state machine uses none of them. Those about partitions read all of them, some seconds for a million, unless the
query names one topic.
"""

from __future__ import annotations

from typing import Final

from statemachine.words.remote_log_states import SegmentState
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

MIN_ISR_CONFIG: Final = "min.insync.replicas"

_MISSING: Final = """
        SELECT json_group_array(replica.value) FROM json_each(replicas) AS replica
        WHERE replica.value NOT IN (SELECT value FROM json_each(isr))
        AND replica.value NOT IN (SELECT value FROM json_each(adding_replicas))
        AND replica.value NOT IN (SELECT value FROM json_each(removing_replicas))"""
"""Brokers that should be in sync and are not. A replica that is being added has not had the time, and one that is being
removed no longer needs to be.
"""

_IS_FINISHED: Final = f"remote_segments.state = {SegmentState.COPY_FINISHED.value}"

_REMOTE_DATA: Final = f"""
        count(*) FILTER (WHERE {_IS_FINISHED}) AS segments,
        coalesce(sum(size_bytes) FILTER (WHERE {_IS_FINISHED}), 0) AS size_bytes,
        min(start_offset) FILTER (WHERE {_IS_FINISHED}) AS lowest_offset,
        max(end_offset) FILTER (WHERE {_IS_FINISHED}) AS highest_offset,
        count(*) FILTER (WHERE remote_segments.state = {SegmentState.COPY_STARTED.value}) AS segments_being_copied,
        count(*) FILTER (WHERE remote_segments.state = {SegmentState.DELETE_STARTED.value}) AS segments_being_deleted,
        remote_partition_deletes.state AS delete_state"""
"""The totals of a partition's remote segments."""

LOG_DIRECTORIES_VIEW: Final = """
    CREATE VIEW log_directories AS
    SELECT
        broker_id,
        directory,
        max(is_online) AS is_online,
        max(is_cordoned) AS is_cordoned,
        max(is_full) AS is_full,
        sum(is_replica) AS replicas,
        sum(is_leader) AS leaders
    FROM (
        SELECT
            broker_id,
            log_dir.value AS directory,
            1 AS is_online,
            log_dir.value IN (SELECT value FROM json_each(cordoned_log_dirs)) AS is_cordoned,
            log_dir.value IN (SELECT value FROM json_each(full_log_dirs)) AS is_full,
            0 AS is_replica,
            0 AS is_leader
        FROM brokers, json_each(brokers.log_dirs) AS log_dir
        UNION ALL SELECT
            replica.value, json_extract(directories, '$[' || replica.key || ']'), 0, 0, 0, 1, replica.value = leader
        FROM partitions, json_each(partitions.replicas) AS replica
    )
    GROUP BY broker_id, directory
    """

VIEW_STATEMENTS: Final = (
    """
    CREATE VIEW replicas AS
    SELECT
        topics.name AS topic,
        partition_id,
        replica.value AS broker_id,
        replica.key AS position,
        replica.value = leader AS is_leader,
        replica.key = 0 AS is_preferred,
        replica.value IN (SELECT value FROM json_each(isr)) AS in_sync,
        replica.value IN (SELECT value FROM json_each(adding_replicas)) AS is_adding,
        replica.value IN (SELECT value FROM json_each(removing_replicas)) AS is_removing,
        json_extract(directories, '$[' || replica.key || ']') AS directory
    FROM partitions JOIN topics USING (topic_id), json_each(partitions.replicas) AS replica
    """,
    """
    CREATE VIEW isr AS
    SELECT topics.name AS topic, partition_id, member.value AS broker_id
    FROM partitions JOIN topics USING (topic_id), json_each(partitions.isr) AS member
    """,
    f"""
    CREATE VIEW under_replicated_partitions AS
    SELECT topic, partition_id, leader, replicas, isr, missing
    FROM (
        SELECT topics.name AS topic, partition_id, leader, replicas, isr, ({_MISSING}) AS missing
        FROM partitions JOIN topics USING (topic_id)
    )
    WHERE missing <> '[]'
    """,  # noqa: S608 (a text of our own, as below)
    f"""
    CREATE VIEW under_min_isr_partitions AS
    SELECT topic, partition_id, leader, isr, min_isr
    FROM (
        SELECT
            topics.name AS topic,
            partition_id,
            leader,
            isr,
            min(
                CAST(coalesce(of_topic.value, of_cluster.value, '1') AS INTEGER),
                json_array_length(replicas)
            ) AS min_isr
        FROM partitions JOIN topics USING (topic_id)
        LEFT JOIN configs AS of_topic ON of_topic.resource_type = {ResourceType.TOPIC.value}
            AND of_topic.resource_name = topics.name AND of_topic.name = '{MIN_ISR_CONFIG}'
        LEFT JOIN configs AS of_cluster ON of_cluster.resource_type = {ResourceType.BROKER.value}
            AND of_cluster.resource_name = '{CLUSTER_DEFAULT}' AND of_cluster.name = '{MIN_ISR_CONFIG}'
    )
    WHERE json_array_length(isr) < min_isr
    """,  # noqa: S608
    """
    CREATE VIEW offline_partitions AS
    SELECT topics.name AS topic, partition_id, leader_epoch, replicas, isr, eligible_leader_replicas, last_known_elr
    FROM partitions JOIN topics USING (topic_id)
    WHERE leader = -1
    """,
    """
    CREATE VIEW leader_skew AS
    SELECT
        broker_id,
        sum(leads) AS leaders,
        sum(is_preferred) AS preferred_leaders,
        sum(is_led_by_another) AS led_by_others,
        CASE sum(is_preferred) WHEN 0 THEN 0.0 ELSE round(1.0 * sum(is_led_by_another) / sum(is_preferred), 4) END
            AS imbalance_ratio
    FROM (
        SELECT broker_id, 0 AS leads, 0 AS is_preferred, 0 AS is_led_by_another FROM brokers
        UNION ALL SELECT leader, 1, 0, 0 FROM partitions WHERE leader <> -1
        UNION ALL SELECT replicas ->> 0, 0, 1, leader <> replicas ->> 0 FROM partitions WHERE replicas <> '[]'
    )
    GROUP BY broker_id
    """,
    """
    CREATE VIEW broker_load AS
    SELECT
        broker_id,
        brokers.broker_id IS NOT NULL AS is_registered,
        brokers.fenced,
        brokers.rack,
        sum(is_replica) AS replicas,
        sum(is_leader) AS leaders
    FROM (
        SELECT broker_id, 0 AS is_replica, 0 AS is_leader FROM brokers
        UNION ALL SELECT replica.value, 1, 0 FROM partitions, json_each(partitions.replicas) AS replica
        UNION ALL SELECT leader, 0, 1 FROM partitions WHERE leader <> -1
    ) LEFT JOIN brokers USING (broker_id)
    GROUP BY broker_id
    """,
    LOG_DIRECTORIES_VIEW,
    """
    CREATE VIEW reassignments AS
    SELECT
        topics.name AS topic,
        partition_id,
        replicas,
        adding_replicas,
        removing_replicas,
        (
            SELECT json_group_array(replica.value) FROM json_each(replicas) AS replica
            WHERE replica.value NOT IN (SELECT value FROM json_each(removing_replicas))
        ) AS target_replicas
    FROM partitions JOIN topics USING (topic_id)
    WHERE adding_replicas <> '[]' OR removing_replicas <> '[]'
    """,
    # In two halves, so that a topic's name leads to its segments: through a LEFT JOIN of topics it does not. The half
    # of the deleted topics has a name that is NULL, so it is not even begun when a query gives a name.
    f"""
    CREATE VIEW tiered_partitions AS
    SELECT topics.name AS topic, topic_id, partition_id, {_REMOTE_DATA}
    FROM topics JOIN remote_segments USING (topic_id)
    LEFT JOIN remote_partition_deletes USING (topic_id, partition_id)
    GROUP BY topic_id, partition_id, topics.name
    UNION ALL
    SELECT CAST(NULL AS TEXT), topic_id, partition_id, {_REMOTE_DATA}
    FROM remote_segments
    LEFT JOIN remote_partition_deletes USING (topic_id, partition_id)
    WHERE topic_id NOT IN (SELECT topic_id FROM topics)
    GROUP BY topic_id, partition_id
    """,  # noqa: S608
)
