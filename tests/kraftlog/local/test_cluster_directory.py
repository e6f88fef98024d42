"""The directory of a local cluster: made once, taken up where it stopped, refused when it is another's."""

from __future__ import annotations

import shutil
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError, DirectoryError
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId
from kraftlog.local import cluster_directory
from kraftlog.local.cluster_directory import free_endpoints, open_or_create
from raft.storage.directory import DataDirectory
from tests.paths import ROOT


def test_a_new_cluster_has_three_voters_one_id_and_a_formatted_directory_each(tmp_path: Path) -> None:
    cluster = open_or_create(tmp_path / "new", observers=2)
    assert (len(cluster.voter_ids), len(cluster.observer_ids)) == (3, 2)
    configs = cluster.load_configs()
    assert len({config.listener for config in configs.values()}) == 5
    for node_id, config in configs.items():
        assert config.is_voter == (node_id in cluster.voter_ids)
        directory = DataDirectory.open(PosixFileSystem(), str(config.directory))
        assert (directory.identity.cluster_id, directory.identity.node_id) == (cluster.cluster_id, node_id)
        directory.close()


def test_the_nodes_listen_where_they_are_told_to(tmp_path: Path) -> None:
    endpoints = [Endpoint("198.18.0.1", 9090), Endpoint("198.18.0.2", 9090), Endpoint("198.18.0.3", 9091)]
    cluster = open_or_create(tmp_path, voters=2, observers=1, endpoints=endpoints)
    assert list(cluster.endpoints.values()) == endpoints
    assert [config.listener for config in cluster.load_configs().values()] == endpoints


def test_opening_again_gives_the_same_cluster(tmp_path: Path) -> None:
    first = open_or_create(tmp_path, voters=1, settings={"fetch.version": 17})
    again = open_or_create(tmp_path)
    assert again == first
    assert again.load_configs()[1].quorum.fetch_version == 17


def test_a_cluster_directory_may_be_moved(tmp_path: Path) -> None:
    open_or_create(tmp_path / "here", voters=1)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = open_or_create(tmp_path / "there")
    assert moved.load_configs()[1].directory == tmp_path / "there" / "node-1"


def test_making_one_that_was_interrupted_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formatted = []

    def interrupted(config, cluster_id, **options):
        if len(formatted) == 2:
            raise KeyboardInterrupt
        formatted.append(cluster_directory_format(config, cluster_id, **options))

    cluster_directory_format = cluster_directory.format_directory
    with monkeypatch.context() as patch:
        patch.setattr(cluster_directory, "format_directory", interrupted)
        with pytest.raises(KeyboardInterrupt):
            open_or_create(tmp_path, voters=3)
    cluster = open_or_create(tmp_path)
    assert cluster.is_complete
    for node_id, config in cluster.load_configs().items():
        directory = DataDirectory.open(PosixFileSystem(), str(config.directory), cluster_id=cluster.cluster_id)
        if node_id <= 2:
            assert directory.identity == formatted[node_id - 1]
        directory.close()


def test_a_directory_with_something_else_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DirectoryError, match="holds something that is not a kraftlog cluster"):
        open_or_create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(DirectoryError, match="is a file"):
        open_or_create(path)


def test_other_counts_than_the_cluster_has_are_refused(tmp_path: Path) -> None:
    open_or_create(tmp_path, voters=1)
    with pytest.raises(ConfigurationError, match="has 1 voters, not 3; leave --voters out"):
        open_or_create(tmp_path, voters=3)
    with pytest.raises(ConfigurationError, match="has 0 observers, not 2"):
        open_or_create(tmp_path, observers=2)


@pytest.mark.parametrize("counts", [{"voters": 0}, {"voters": 1000}, {"observers": -1}])
def test_counts_out_of_range_are_refused_and_nothing_is_made(tmp_path: Path, counts: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="a local cluster has from"):
        open_or_create(tmp_path / "new", **counts)
    assert not (tmp_path / "new").exists()


def test_a_voter_whose_data_is_gone_is_refused_and_not_formatted_anew(tmp_path: Path) -> None:
    open_or_create(tmp_path, voters=3)
    shutil.rmtree(tmp_path / "node-2")
    with pytest.raises(DirectoryError, match="the data of node 2 is missing"):
        open_or_create(tmp_path)
    assert not (tmp_path / "node-2").exists()


@pytest.mark.parametrize(
    ("lost", "named", "page"),
    [
        ((2,), "node 2", "replacing-a-disk.md"),
        ((2, 4), "nodes 2, 4", "replacing-a-disk.md"),
        ((4,), "node 4", "nodes.md"),
        ((2, 3), "nodes 2, 3", "all-voters-are-lost.md"),
        ((1, 2, 3, 4), "nodes 1, 2, 3, 4", "all-voters-are-lost.md"),
    ],
)
def test_the_page_for_what_is_lost_is_named(tmp_path: Path, lost: tuple[int, ...], named: str, page: str) -> None:
    """Of three voters and an observer."""
    open_or_create(tmp_path, voters=3, observers=1)
    for node_id in lost:
        shutil.rmtree(tmp_path / f"node-{node_id}")
    with pytest.raises(DirectoryError, match=rf"the data of {named} is missing: .* see docs/operations/{page}$"):
        open_or_create(tmp_path)
    assert (ROOT / "docs" / "operations" / page).exists()


def test_an_unknown_format_version_is_refused_by_its_number(tmp_path: Path) -> None:
    open_or_create(tmp_path, voters=1)
    file = tmp_path / "cluster.toml"
    file.write_text(file.read_text().replace("format.version = 1", "format.version = 9"))
    with pytest.raises(DirectoryError, match="format version 9; this kraftlog knows version 1"):
        open_or_create(tmp_path)


@pytest.mark.parametrize("damage", ["voters", "[listeners]", "cluster.id", "format.version"])
def test_a_damaged_cluster_file_is_refused(tmp_path: Path, damage: str) -> None:
    open_or_create(tmp_path, voters=1)
    file = tmp_path / "cluster.toml"
    file.write_text(file.read_text().replace(damage, "nonsense", 1))
    with pytest.raises(DirectoryError, match=r"cluster\.toml is damaged"):
        open_or_create(tmp_path)


def test_a_cluster_file_beyond_what_python_parses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("voters = " + "[" * 3000)
    with pytest.raises(DirectoryError, match=r"cluster\.toml is damaged"):
        open_or_create(tmp_path)


def test_a_node_file_with_another_id_is_refused(tmp_path: Path) -> None:
    cluster = open_or_create(tmp_path, voters=2)
    shutil.copy(cluster.config_path(1), cluster.config_path(2))
    with pytest.raises(ConfigurationError, match=r"node-2\.toml: node\.id = 1; make it 2"):
        open_or_create(tmp_path).load_configs()


def test_free_endpoints_are_different_and_not_in_use() -> None:
    endpoints = free_endpoints(20)
    assert len(set(endpoints)) == 20
    for endpoint in endpoints:
        with socket.socket() as probe:
            probe.bind(endpoint)


def test_nodes_listen_at_consecutive_ports_from_the_first_one_on(tmp_path: Path) -> None:
    first_port = consecutive_free_ports(3)
    cluster = open_or_create(tmp_path, voters=2, observers=1, first_port=first_port)
    assert [cluster.endpoints[NodeId(n)].port for n in (1, 2, 3)] == [first_port, first_port + 1, first_port + 2]
    assert open_or_create(tmp_path, first_port=first_port) == open_or_create(tmp_path) == cluster
    with pytest.raises(ConfigurationError, match=rf"listens at 127.0.0.1:{first_port}, not at port 9092; leave"):
        open_or_create(tmp_path, first_port=9092)


def test_a_port_in_use_makes_no_cluster(tmp_path: Path) -> None:
    first_port = consecutive_free_ports(2)
    with socket.socket() as other:
        other.bind(("127.0.0.1", first_port + 1))
        other.listen()
        with pytest.raises(ConfigurationError, match=rf"127.0.0.1:{first_port + 1}: Address already in use; name"):
            open_or_create(tmp_path / "cluster", voters=2, first_port=first_port)
    assert not (tmp_path / "cluster").exists()


def test_ports_above_the_last_make_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="3 nodes from port 65534 on; there is none above 65535"):
        open_or_create(tmp_path / "cluster", first_port=65534)
    assert not (tmp_path / "cluster").exists()


def consecutive_free_ports(count: int) -> int:
    """The first of `count` ports at which no process listens now."""
    for endpoint in free_endpoints(20):
        with suppress(OSError), ExitStack() as stack:
            for port in range(endpoint.port, endpoint.port + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return endpoint.port
    raise AssertionError("no ports in a row are free")
