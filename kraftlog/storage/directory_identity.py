"""The cluster and the broker that a log directory belongs to: `meta.properties`."""

from __future__ import annotations

from uuid import UUID

from kraftbase.errors import DirectoryError, ErrorCode
from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.storage.formats.checkpoints import decode_meta, encode_meta
from kraftlog.storage.formats.names import META_NAME


def identify(files: FileSystem, directory: str, cluster_id: str, node_id: int, new_directory_id: UUID) -> UUID:
    """Return the id of a directory. A new directory is assigned to this broker and gets `new_directory_id`.

    Raises DirectoryError if the directory belongs to another broker or cluster, or if its file is malformed.
    """
    path = join(directory, META_NAME)
    if not files.exists(path):
        write_new_file(files, path, encode_meta(cluster_id, node_id, new_directory_id))
    try:
        found_cluster, found_node, directory_id = decode_meta(read_whole(files, path), path)
    except MalformedBytes as error:
        raise DirectoryError(f"{error}. Put the file back as it was: it says whose data is in {directory}") from None
    if found_cluster != cluster_id:
        raise DirectoryError(
            f"{directory} belongs to cluster {found_cluster}, and this broker to cluster {cluster_id}",
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        )
    if found_node != node_id:
        raise DirectoryError(
            f"{directory} belongs to broker {found_node}, and this is broker {node_id}. Give the directory back to"
            f" broker {found_node}, and start broker {node_id} with its own directories"
        )
    return directory_id
