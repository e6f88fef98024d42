"""The numbers that every package uses, as types of their own: ids of nodes and directories, epochs and offsets.

Offsets are end-exclusive everywhere: a log end offset is the offset that the next record will get, and a high
watermark is the first offset that is not committed. A variable that holds an inclusive offset says so in its
name (`last_offset`, `last_contained_offset`).
"""

from __future__ import annotations

from typing import NewType
from uuid import UUID

NodeId = NewType("NodeId", int)
Epoch = NewType("Epoch", int)
Offset = NewType("Offset", int)
DirectoryId = UUID
