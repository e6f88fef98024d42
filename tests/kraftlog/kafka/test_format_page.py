"""docs/formats/kafka.md matches the code: APIs, records, headers, limits and the examples."""

from __future__ import annotations

import re
import struct

from kraftlog.kafka.apis import all_apis, own_apis
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.frames import FRAME_BYTES_MAX, RESERVED_BYTES_MAX
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest
from kraftlog.kafka.metadata_records import TopicRecord
from kraftlog.kafka.read_compiler import STRING_BYTES_MAX
from kraftlog.kafka.record_batch import HEADER, HEADER_BYTES, LENGTH_END, Compression, encode_batch, read_batch
from kraftlog.kafka.record_values import CONTROL_RECORDS, METADATA_RECORDS, ControlType, encode_metadata_record
from kraftlog.kafka.records import Record
from tests.kraftlog.kafka.test_random_bytes import TIMES_MAX
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "formats" / "kafka.md").read_text()


def _examples() -> list[bytes]:
    """The bytes of the worked examples, whose lines have their positions."""
    examples = []
    for block in re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL):
        data = b""
        for line in block.splitlines():
            position, hexadecimal = line.split()[:2]
            assert int(position) == len(data), line
            data += bytes.fromhex(hexadecimal)
        examples.append(data)
    return examples


def test_the_page_has_every_api_in_its_versions() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\d-]+) \| (\d+) \|$", PAGE, re.MULTILINE)
    ours = [
        (str(api.key), api.name, str(api.versions), str(api.request.FLEXIBLE.lowest))
        for api in (*all_apis(), *own_apis())
    ]
    assert rows == ours
    unstable = [f"{api.name} {api.request.UNSTABLE.lowest}" for api in all_apis() if list(api.request.UNSTABLE)]
    assert re.findall(r"^(\w+ \d+) is unstable in 4\.3", PAGE, re.MULTILINE) == unstable


def test_the_page_has_every_metadata_record() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+Record) \| ([\d-]+) \|$", PAGE, re.MULTILINE)
    assert rows == [(str(key), found.__name__, str(found.VERSIONS)) for key, found in METADATA_RECORDS.items()]


def test_the_header_of_a_batch_is_as_drawn() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \| ([\w ]+) \|", PAGE, re.MULTILINE)
    letters = {"int8": "b", "int16": "h", "int32": "i", "uint32": "I", "int64": "q"}
    assert ">" + "".join(letters[kind] for _, _, kind, _ in rows) == HEADER.format
    position = 0
    for start, size, kind, _ in rows:
        assert (int(start), int(size)) == (position, struct.calcsize(letters[kind]))
        position += int(size)
    assert position == HEADER_BYTES
    assert f"at least {HEADER_BYTES - LENGTH_END} " in PAGE
    assert ", ".join(f"{kind.value} {kind.name.lower()}" for kind in Compression) in PAGE


def test_the_examples_are_what_is_written() -> None:
    request, batch = _examples()
    asked = ClientConnection("c").send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert b"".join(asked) == request
    topic = TopicRecord(name="t", topic_id=bytes.fromhex("6f1d9c523b0a4e8f9a570c4d2e81b3f6"))
    record = Record(41, 1_700_000_000_000, None, encode_metadata_record(topic, 0))
    assert encode_batch((record,), base_offset=41, partition_leader_epoch=7) == batch
    read = read_batch(batch)
    assert read is not None
    read.check_crc()
    assert read.records() == (record,)


def test_the_limits_are_those_of_the_code() -> None:
    assert f"at most {STRING_BYTES_MAX:,} bytes" in PAGE
    assert f"which is {FRAME_BYTES_MAX >> 20} MiB if no other is given" in PAGE
    assert f"reserves at most {RESERVED_BYTES_MAX >> 20} MiB" in PAGE
    assert f"at most {TIMES_MAX} times the memory" in PAGE


def test_the_page_has_every_type_of_control_record() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| (.+) \|$", PAGE.partition("\n## Control records\n")[2], re.MULTILINE)
    assert [int(number) for numbers, _ in rows for number in numbers.split(", ")] == list(ControlType)
    for numbers, names in rows:
        for number in numbers.split(", "):
            assert CONTROL_RECORDS[ControlType(int(number))].__name__ in names
