"""A fault: a bit of a log's index changes on disk."""

from __future__ import annotations

from random import Random

from kraftbase.files.files import join, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.formats.names import partition_in_name


def corrupt_index(files: MemoryFileSystem, directories: int, random: Random) -> str | None:
    """Change a bit of an index. Return its path; None if no index in the log directories has an entry."""
    found = []
    for number in range(directories):
        for name in files.list_directory(f"logs-{number}") if files.exists(f"logs-{number}") else ():
            directory = join(f"logs-{number}", name)
            if partition_in_name(name) is None:
                continue
            found += [
                (join(directory, index), min(len(durable.data), len(read_whole(files, join(directory, index)))))
                for index, durable in files.durable_files(directory).items()
                if index.endswith((".index", ".timeindex")) and files.exists(join(directory, index))
            ]
    found = [(path, size) for path, size in found if size]
    if not found:
        return None
    path, size = random.choice(found)
    position = random.randrange(size)
    byte = read_whole(files, path)[position]
    files.damage(path, position, bytes([byte ^ 1 << random.randrange(8)]))
    return path
