"""What counts as a difference, and what records add up to."""

from __future__ import annotations

import pytest

from kraftlog.difftest import steps
from kraftlog.difftest.comparison import Difference, compare_answers, compare_images, compare_records
from kraftlog.difftest.deviations import STALE_INDEX, explained
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
    assert [found.rule for found in explained([meant, wrong], step, {})] == ["CT-34", ""]


def test_ct36_only_the_fencing_before_it_explains_more_records_of_an_unregistration() -> None:
    step = steps.UnregisterBroker(1)
    theirs = "UnregisterBroker(epoch=registration 1)"
    fenced = f"BrokerRegistrationChange(epoch=registration 1, fenced=True); {theirs}"
    found = [
        Difference(0, "records", "broker 1", theirs, fenced),
        Difference(0, "records", "broker 1", theirs, "nothing"),
    ]
    assert [one.rule for one in explained(found, step, {})] == ["CT-36", ""]


def rule_of(step: steps.Step, of: str, where: str, kafka: str, own: str) -> str:
    """The rule that explains one difference; before the step broker 4 is being added to partition t-0.

    Partition s-0 has one replica, partition s-1 two, partition s-2 no leader.
    """
    moving = {**PARTITION, "replicas": (4, 1, 2), "adding": (4,), "directories": ("4:1", "1:1", "2:1")}
    before = image(CREATED[0], Record("Partition", "partition t-0", moving))
    small = {**PARTITION, "replicas": (1,), "isr": (1,), "directories": ("1:1",)}
    leaderless = {**PARTITION, "leader": -1, "isr": (1,)}
    for number, values in enumerate((small, PARTITION, leaderless)):
        before.apply(Record("Partition", f"partition s-{number}", values))
    (found,) = explained([Difference(0, of, where, kafka, own)], step, before.partitions)
    return found.rule


FENCE = "BrokerRegistrationChange(epoch=registration 1, fenced=True)"
SHRUNK = "PartitionChange(isr=(1,), leader=1"
GONE = "PartitionChange(isr=(), elr=(1,)"
UNCLEAN = "PartitionChange(isr=({0},), leader={0}, recovery_state=1)"


@pytest.mark.parametrize(
    ("rule", "step", "of", "where", "kafka", "own"),
    [
        ("CT-22", steps.DeleteTopics(("",)), "answer", "", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"),
        ("", steps.DeleteTopics(("t",)), "answer", "t", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"),
        ("CT-30", steps.VanishBroker(1), "records", "broker 1", FENCE, "nothing"),
        ("CT-30", steps.VanishBroker(1), "records", "broker 1", f"{FENCE}; RegisterBroker()", "RegisterBroker()"),
        ("", steps.VanishBroker(1), "records", "broker 1", "nothing", FENCE),
        ("CT-32", steps.PlaceTopic("p", 1, 2), "placement", "active brokers first", "False", "True"),
        ("", steps.PlaceTopic("p", 1, 2), "placement", "active brokers first", "True", "False"),
        ("", steps.PlaceTopic("p", 1, 2), "placement", "epochs are 0", "False", "True"),
        ("CT-33", steps.RegisterBroker(1, 1), "records", "broker 1", "RegisterBroker(epoch=registration 1)", "nothing"),
        ("CT-51", steps.Heartbeat(1), "records", "partition t-0", UNCLEAN.format(4), UNCLEAN.format(2)),
        ("", steps.Heartbeat(1), "records", "partition t-0", UNCLEAN.format(2), UNCLEAN.format(4)),
        ("", steps.Heartbeat(1), "records", "partition t-0", UNCLEAN.format(4), "PartitionChange(leader=2)"),
        ("", steps.Heartbeat(1), "records", "partition u-0", UNCLEAN.format(4), UNCLEAN.format(2)),
        ("CT-56", steps.Heartbeat(2), "records", "partition s-1", SHRUNK + ")", SHRUNK + ", elr=(2,))"),
        ("", steps.Heartbeat(2), "records", "partition t-0", SHRUNK + ")", SHRUNK + ", elr=(2,))"),
        ("CT-56", steps.Heartbeat(2), "records", "partition s-1", "PartitionChange(elr=())", "nothing"),
        ("", steps.Heartbeat(2), "records", "partition s-1", SHRUNK + ", elr=(2,))", "nothing"),
        ("CT-56", steps.Heartbeat(1), "records", "partition s-2", GONE + ")", GONE + ", last_known_elr=(1,))"),
        ("", steps.Heartbeat(1), "records", "partition t-0", GONE + ")", GONE + ", last_known_elr=(1,))"),
        ("CT-56", steps.ElectLeaders(0, None), "answer", "s-1", "NONE", "PREFERRED_LEADER_NOT_AVAILABLE"),
        ("", steps.ElectLeaders(0, None), "answer", "t-0", "NONE", "PREFERRED_LEADER_NOT_AVAILABLE"),
        ("CT-56", steps.AlterConfigs(2, "t", ()), "records", "topic t", "Topic(); ClearElr(topic=t)", "Topic()"),
        ("CT-56", steps.AlterConfigs(2, "t", ()), "records", "topic ", "ClearElr(topic=)", "nothing"),
        ("", steps.AlterConfigs(2, "t", ()), "records", "topic t", "Topic(); ClearElr(topic=t)", "nothing"),
        ("CT-56", steps.Heartbeat(1), "answer", "", f"NOT_CONTROLLER: Topic ID x {STALE_INDEX}.", "an answer"),
        ("", steps.Heartbeat(1), "answer", "", "NOT_CONTROLLER: Kafka's controller resigned", "an answer"),
        ("CT-56", steps.AlterPartition("t", 0), "records", "partition t-0", "PartitionChange()", "nothing"),
        ("CT-56", steps.AlterPartition("t", 0), "answer", "t-0", "NONE partition_epoch=6", "NONE partition_epoch=5"),
        ("", steps.AlterPartition("t", 0), "answer", "t-0", "NONE leader_epoch=6", "NONE leader_epoch=5"),
        ("CT-60", steps.AlterConfigs(1, "t", ()), "answer", "t", "UNSUPPORTED_VERSION", "INVALID_REQUEST"),
        ("CT-61", steps.UpdateFeature("f", 1, 1), "records", "feature f", "FeatureLevel(level=1)", "nothing"),
        ("CT-63", steps.CreateAcls(()), "answer", "0", "UNKNOWN_SERVER_ERROR", "INVALID_REQUEST"),
        ("", steps.CreateAcls(()), "answer", "0", "UNKNOWN_SERVER_ERROR", "NONE"),
    ],
)
def test_what_explains_a_difference(rule: str, step: steps.Step, of: str, where: str, kafka: str, own: str) -> None:
    assert rule_of(step, of, where, kafka, own) == rule


@pytest.mark.parametrize(("with_former", "rule"), [([("t", 0)], "CT-56"), ([("t", 1)], ""), ([], "")])
def test_the_last_known_leader_is_not_elected_by_kafka_while_its_list_names_a_former_replica(
    with_former: list[tuple[str, int]], rule: str
) -> None:
    own = "PartitionChange(isr=(2,), leader=2, recovery_state=1, last_known_elr=())"
    moved = "directories=('2:2',)"
    own_and = f"PartitionChange(isr=(2,), leader=2, recovery_state=1, {moved}, elr=(), last_known_elr=())"
    for kafka, ours in (("nothing", own), (f"PartitionChange({moved})", own_and)):
        found = Difference(0, "records", "partition t-0", kafka, ours)
        assert [one.rule for one in explained([found], steps.Heartbeat(2), {}, with_former)] == [rule]
    for kafka, ours in (("nothing", own_and), ("nothing", "PartitionChange(last_known_elr=())"), (own, own_and)):
        found = Difference(0, "records", "partition t-0", kafka, ours)
        assert [one.rule for one in explained([found], steps.Heartbeat(2), {}, with_former)] == [""]


def test_eligible_replicas_are_compared_in_one_order_and_without_those_that_are_none() -> None:
    found = image(*CREATED)
    assert str(found.settled(change(isr=(1,), elr=(2, 1, 9)))) == "PartitionChange(isr=(1,), elr=(1, 2))"
    assert str(found.settled(change(isr=(1,), elr=(9,)))) == "PartitionChange(isr=(1,))"
    found.apply(change(elr=(2,)))
    assert str(found.settled(change(replicas=(1,)))) == "PartitionChange(replicas=(1,), elr=())"
    assert found.settled(CREATED[0]) is CREATED[0]


def test_who_was_eligible_and_is_no_replica_any_more_is_remembered_until_kafka_forgets_it() -> None:
    found = image(*CREATED)

    def take(record: Record) -> None:
        found.apply(found.settled(record))

    take(change(isr=(1,), elr=(2,)))
    take(change(replicas=(1,)))
    assert found.former_eligible["t", 0] == {2} and found.partitions["t", 0].elr == ()
    take(change(replicas=(1, 2)))
    assert not found.former_eligible["t", 0] and found.partitions["t", 0].elr == (2,)
    take(change(replicas=(1,)))
    take(Record("ClearElr", "topic ", {"topic": ""}))
    assert not found.former_eligible
    take(change(elr=(9,)))
    take(CREATED[1])
    assert not found.former_eligible


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
