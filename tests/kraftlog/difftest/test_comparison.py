"""What counts as a difference, and what records add up to."""

from __future__ import annotations

import pytest

from kraftlog.difftest import steps
from kraftlog.difftest.comparison import Difference, compare_answers, compare_images, compare_records
from kraftlog.difftest.deviations import explained
from kraftlog.difftest.image import Image, WrongRecord
from kraftlog.difftest.placement import properties
from kraftlog.difftest.records import Record
from kraftlog.difftest.run import is_alike

PARTITION = {
    "replicas": (1, 2), "isr": (1, 2), "removing": (), "adding": (), "leader": 1, "recovery_state": 0,
    "leader_epoch": 0, "partition_epoch": 0, "directories": ("1:1", "2:1"), "elr": (), "last_known_elr": (),
}  # fmt: skip
CREATED = [Record("Topic", "topic t", {"name": "t"}), Record("Partition", "partition t-0", PARTITION)]


def image(*records: Record) -> Image:
    found = Image()
    for record in records:
        found.apply(record)
    return found


def change(**values: object) -> Record:
    return Record("PartitionChange", "partition t-0", values)


def test_the_order_of_resources_does_not_count_and_that_within_one_does() -> None:
    first, second = change(isr=(1,)), change(leader=2)
    other = Record("Config", "configs topic 't'", {"name": "n", "value": "1"})
    assert compare_records(0, [first, other, second], [other, first, second]) == []
    (found,) = compare_records(0, [first, second], [second, first])
    assert (found.of, found.where) == ("records", "partition t-0")


def test_what_only_one_system_did_is_a_difference() -> None:
    (found,) = compare_records(3, [], [change(isr=(1,))])
    assert (found.step, found.kafka, found.own) == (3, "nothing", "PartitionChange(isr=(1,))")
    assert [found.where for found in compare_answers(0, {"a": "NONE"}, {"b": "NONE"})] == ["a", "b"]


def test_ct01_epochs_follow_from_the_changes() -> None:
    found = image(*CREATED, change(isr=(2,)), change(leader=2), change(leader=2, elr=(1,)))
    partition = found.partitions["t", 0]
    assert (partition.leader_epoch, partition.partition_epoch) == (2, 3)
    assert (partition.isr, partition.elr, partition.replicas) == ((2,), (1,), (1, 2))


def test_a_topic_goes_with_its_partitions_and_configs() -> None:
    config = Record("Config", "configs topic 't'", {"name": "n", "value": "1"})
    assert "configs topic 't'" in image(*CREATED, config).resources()
    found = image(*CREATED, config, Record("RemoveTopic", "topic t", {"name": "t"}))
    assert found.resources() == Image().resources()


@pytest.mark.parametrize("topic", ["t", ""])
def test_one_record_can_clear_eligible_replicas(topic: str) -> None:
    found = image(*CREATED, change(elr=(2,)), Record("ClearElr", f"topic {topic}", {"topic": topic}))
    assert (found.partitions["t", 0].elr, found.partitions["t", 0].partition_epoch) == ((), 2)
    assert found.has_forgotten_eligible


def test_what_has_no_eligible_replicas_is_not_changed_when_they_are_cleared() -> None:
    found = image(*CREATED, Record("ClearElr", "topic t", {"topic": "t"}))
    assert found.partitions["t", 0].partition_epoch == 0 and not found.has_forgotten_eligible


def test_a_record_about_nothing_is_wrong() -> None:
    with pytest.raises(WrongRecord, match="does not exist"):
        image(change(isr=(1,)))
    with pytest.raises(WrongRecord, match="no controller should"):
        image(Record("UserScramCredentialRecord", "other", {}))


def test_images_are_compared_apart_from_what_was_there_before() -> None:
    theirs = image(Record("FeatureLevel", "feature group.version", {"level": 1}), *CREATED)
    ours = image(*CREATED)
    before = {"feature group.version": 1}
    assert compare_images(0, theirs, ours, before, {}) == []
    ours.apply(change(leader=2))
    (found,) = compare_images(0, theirs, ours, before, {})
    assert (found.of, found.where) == ("image", "partition t-0")
    theirs.apply(Record("FeatureLevel", "feature group.version", {"level": 0}))
    assert len(compare_images(0, theirs, ours, before, {})) == 2


def test_quotas_and_entries_that_are_gone_leave_nothing() -> None:
    entity = (("user", "u"),)
    records = [
        Record("ClientQuota", "quotas user='u'", {"entity": entity, "key": "k", "value": 1.0}),
        Record("AccessControlEntry", "entry e", {}),
    ]
    assert image(*records).resources() == {**Image().resources(), "quotas user='u'": {"k": 1.0}, "entry e": 1}
    records += [
        Record("ClientQuota", "quotas user='u'", {"entity": entity, "key": "k", "value": None}),
        Record("RemoveAccessControlEntry", "entry e", {}),
    ]
    assert image(*records).resources() == Image().resources()


def test_ct34_a_deviation_that_is_meant_has_its_rule_and_another_error_has_none() -> None:
    step = steps.Heartbeat(9)
    meant = Difference(0, "answer", "", "STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED")
    wrong = Difference(0, "answer", "", "STALE_BROKER_EPOCH", "NONE caught_up=True")
    assert [found.rule for found in explained([meant, wrong], step)] == ["CT-34", ""]


def test_ct36_only_the_fencing_before_it_explains_more_records_of_an_unregistration() -> None:
    step = steps.UnregisterBroker(1)
    theirs = "UnregisterBroker(epoch=registration 1)"
    fenced = f"BrokerRegistrationChange(epoch=registration 1, fenced=True); {theirs}"
    found = [
        Difference(0, "records", "broker 1", theirs, fenced),
        Difference(0, "records", "broker 1", theirs, "nothing"),
    ]
    assert [one.rule for one in explained(found, step)] == ["CT-36", ""]


def test_properties_of_a_placed_topic() -> None:
    good = properties(image(*CREATED), "t")
    assert good["exists"] and good["replicas are distinct"] and good["replication factors"] == [2]
    partition = Record("Partition", "partition t-0", {**PARTITION, "replicas": (1, 1), "leader": 2})
    bad = properties(image(CREATED[0], partition), "t")
    assert not bad["replicas are distinct"]
    assert {name for name in good if good[name] != bad[name]} >= {"replicas are distinct"}
    assert properties(Image(), "t")["exists"] is False


def test_differences_are_alike_apart_from_ids_and_epochs() -> None:
    one = Difference(5, "records", "partition a-0", "PartitionChange(isr=(1, 2), leader=2)", "nothing")
    alike = Difference(2, "records", "partition b-1", "PartitionChange(isr=(3,), leader=1)", "nothing")
    assert is_alike(one, alike)
    for other in (
        Difference(5, "records", "broker 1", one.kafka, one.own),
        Difference(5, "image", one.where, one.kafka, one.own),
        Difference(5, "records", one.where, one.own, one.kafka),
        Difference(5, "records", one.where, "PartitionChange(isr=(), leader=2)", one.own),
    ):
        assert not is_alike(one, other)
    refused = Difference(0, "answer", "t-0", "NONE leader=1", "INVALID_REQUEST")
    assert is_alike(refused, Difference(9, "answer", "u-1", "NONE leader=3", "INVALID_REQUEST"))
    assert not is_alike(refused, Difference(0, "answer", "t-0", "NONE leader=1", "NONE leader=2"))
