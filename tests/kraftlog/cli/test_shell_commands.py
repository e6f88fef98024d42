"""`kraftlog shell`: its commands and paths (OT-11)."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.offline.metadata_shell import ALTERNATIVES_MAX, COMMANDS, CommandError, alternatives, find_paths
from kraftlog.offline.metadata_tree import File, root
from statemachine.store.metadata_tables import MetadataTables
from tests.kraftlog.cli.shell_sessions import LISTING, NODES, RECORDS, Memory, Session, session
from tests.kraftlog.offline.test_metadata_tree import everything
from tests.statemachine.builders import CLUSTER_ID, log_of, partition, topic

__all__ = ["session"]

# --- commands ---------------------------------------------------------------------------------------------------------


def test_ls_lists_directories(session: Session) -> None:
    assert session.does("ls") == ["applied", "brokers", "cluster", "configs", "topicIds", "topics"]
    assert session.does("ls /topics") == ["a.b", "odd%20name%2A", "orders"]
    assert session.does("ls /topics/odd%20name%2A/configs") == []
    assert session.does("ls /cluster/id /brokers topics/orders/id topics/a.b") == [
        *("/cluster/id", "/topics/orders/id"),
        *("", "/brokers:", "1", "2"),
        *("", "/topics/a.b:", "configs", "id", "partitions"),
    ]
    assert session.does("ls brokers cluster") == ["/brokers:", "1", "2", "", "/cluster:", "id"]


def test_ls_can_tell_how_much_there_is(session: Session) -> None:
    assert session.does("ls -l / /cluster/id")[0] == f"- {len(CLUSTER_ID):>10} /cluster/id"
    assert session.does("ls -l /topics/orders") == [f"d {2:>10} configs", f"- {22:>10} id", f"d {3:>10} partitions"]


def test_cat_prints_files(session: Session) -> None:
    assert session.does("cat /cluster/id") == [CLUSTER_ID]
    found = json.loads("\n".join(session.does("cat /topics/orders/partitions/2")))
    assert found["partitionId"] == 2
    assert session.does("cat /brokers/*/isFenced") == ["false", "true"]
    assert session.does("cat topics/orders/configs/*") == [r"two\nlines\x1b[31m", "1"]
    assert session.fails("cat") == "cat: name a file"
    assert session.fails("cat /topics") == "cat: /topics: is a directory"


def test_tree_shows_all_but_not_too_much(session: Session) -> None:
    assert session.does("tree /topics/orders") == [
        "/topics/orders",
        "  configs/",
        "    note",
        "    retention.ms",
        "  id",
        "  partitions/",
        *("    0", "    1", "    2"),
    ]
    assert session.does("tree -n 1 /topics") == [
        "/topics",
        "  a.b/",
        "    configs/",
        "    ... 2 more",
        "  ... 2 more",
    ]
    assert session.does("tree /cluster/id") == ["/cluster/id"]
    assert len(session.does("tree")) == sum(1 for _ in everything(root(session.source.connection)))
    MetadataTables(session.source.connection).apply(
        log_of([RECORDS, [topic("large", 9), *(partition(9, number) for number in range(2_000))]])
    )
    assert session.does("tree /topics/large/partitions")[-2:] == ["  19", "  ... 1,980 more"]
    assert session.does("tree /topics/large/partitions -n 2000")[-1] == "  1999"


def test_find_prints_paths_that_lead_there(session: Session) -> None:
    assert session.does("find /brokers") == [
        "/brokers",
        *(f"/brokers/{at}" for at in ("1", "1/inControlledShutdown", "1/isFenced", "1/registration")),
        *(f"/brokers/{at}" for at in ("2", "2/inControlledShutdown", "2/isFenced", "2/registration")),
    ]
    assert session.does("find / -name '{id,note}'") == [
        "/cluster/id",
        "/configs/topics/orders/note",
        "/topics/a.b/id",
        "/topics/odd%20name%2A/id",
        "/topics/orders/configs/note",
        "/topics/orders/id",
    ]
    assert session.does("find -name nothing") == session.does("find -name ''") == []
    session.does("cd /topics")
    assert session.does("find -name 'r*'") == ["orders/configs/retention.ms"]
    found = session.does("find")
    assert found[0] == "."
    assert session.does("ls -l " + " ".join(found[1:]))
    assert session.does("find ../brokers/1 -name '*ion'") == ["/brokers/1/registration"]
    assert session.does("find / -name /") == ["/"]


def test_cd_and_pwd(session: Session) -> None:
    assert session.does("pwd") == ["/"]
    for path, there in (
        ("topics", "/topics"),
        ("ord*", "/topics/orders"),
        ("./partitions/", "/topics/orders/partitions"),
        ("../..", "/topics"),
        ("gone/../a.b/.", "/topics/a.b"),
        ("/..", "/"),
        ("../../configs//brokers/default", "/configs/brokers/default"),
        ("", "/"),
    ):
        assert session.does(f"cd {path}") == []
        assert session.does("pwd") == [there] == [session.shell.current_directory]
    assert session.fails("cd /cluster/id") == "cd: /cluster/id: not a directory"
    assert session.fails("cd /topics/*") == "cd: /topics/*: stands for more than one path"
    assert session.fails("cd /topics/x") == "cd: /topics/x: no such file or directory"
    assert session.does("pwd") == ["/"]


def test_help_and_man_explain_every_command(session: Session) -> None:
    lines = session.does("help")
    assert lines == session.does("man")
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    for name in COMMANDS:
        usage, explanation = session.does(f"man {name}")
        assert usage.split()[0] == name
        assert explanation.startswith("    ")
        assert explanation.endswith(".")
    assert session.fails("man nonsense") == "man: nonsense: no such command"


@pytest.mark.parametrize("name", ["exit", "quit"])
def test_exit_ends_it(session: Session, name: str) -> None:
    session.does("")
    assert not session.shell.is_done
    session.does(name)
    assert session.shell.is_done


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ls /topics/x", "ls: /topics/x: no such file or directory"),
        ("ls /topics/x*", "ls: /topics/x*: no such file or directory"),
        ("ls ''", "ls: '': no such file or directory"),
        ("ls /cluster/id/", "ls: /cluster/id/: not a directory"),
        ("cat /cluster/id/x", "cat: /cluster/id/x: not a directory"),
        ("cat '/x\x1b[31m'", r"cat: /x\x1b[31m: no such file or directory"),
        ("find x/y", "find: x/y: no such file or directory"),
        ("tree x", "tree: x: no such file or directory"),
        ("tree / /", "tree: /: too many words; usage: tree [-n COUNT] [PATH]"),
        ("tree -n", "tree: -n needs a value; usage: tree [-n COUNT] [PATH]"),
        ("tree -n 0", "tree: 0: not a number from 1 to 999999999"),
        ("tree -n ١", "tree: ١: not a number from 1 to 999999999"),
        ("ls -a", "ls: -a: no such option; usage: ls [-l] [PATH...]"),
        ("ls -- -l", "ls: -l: no such file or directory"),
        ("find -type f", "find: -type: no such option; usage: find [PATH] [-name GLOB]"),
        ("pwd x", "pwd: x: too many words; usage: pwd"),
        ("rm -r /", "rm: no such command; see help"),
        ("'\x1b' /", r"\x1b: no such command; see help"),
        ("ls 'x", "ls 'x: no closing quotation"),
        ("ls x\\", "ls x\\: no escaped character"),
        ("cat /%ff", "cat: /%ff: no such file or directory"),
        ("cat /topics/a\0", r"cat: /topics/a\x00: no such file or directory"),
        ("ls " + "{a,b}" * 40, f"ls: {'{a,b}' * 40}: stands for too many paths"),
        ("ls " + "{a,a}" * 40, f"ls: {'{a,a}' * 40}: stands for too many paths"),
        ("ls " + "{" * 5000, f"ls: {'{' * 5000}: no such file or directory"),
    ],
)
def test_errors_are_one_line(session: Session, line: str, error: str) -> None:
    assert session.fails(line) == error


def test_the_rest_is_done_all_the_same(session: Session) -> None:
    assert not session.shell.run_line("cat /x /cluster/id /topics /{y,cluster}/id")
    assert session.output == [CLUSTER_ID] * 2
    assert session.errors == [
        "cat: /x: no such file or directory",
        "cat: /topics: is a directory",
        "cat: /y/id: no such file or directory",
    ]


def test_a_current_directory_that_goes_is_missed_and_left(session: Session) -> None:
    session.does("cd /topics/orders/partitions")
    session.source.connection.execute("DELETE FROM topics WHERE name = 'orders'")
    assert "no such file" in session.fails("ls ..")
    assert session.fails("cat 0") == "cat: 0: no such file or directory"
    session.does("cd ../..")
    assert session.does("ls") == ["a.b", "odd%20name%2A"]


# --- globs ------------------------------------------------------------------------------------------------------------

PIECE = st.one_of(
    st.sampled_from(["*", "?", "[a-o]", "[!o]", "[]", "[", "]", ".", "*s", "{", "}", ",", "%", "{a,o}*", "{0,{1,2}}"]),
    st.text(alphabet="abcdiorst012.*?", max_size=3),
)


@st.composite
def pattern(draw: st.DrawFn) -> str:
    """The path of something, some of whose names became patterns; or what is no path of anything."""
    if draw(st.integers(0, 4)) == 0:
        return "/".join(draw(st.lists(st.lists(PIECE, max_size=3).map("".join), min_size=1, max_size=4)))
    names = []
    for name in draw(st.sampled_from(LISTING)):
        begin = draw(st.integers(0, len(name)))
        end = draw(st.integers(begin, len(name)))
        names.append(draw(st.sampled_from([name, name, f"{name[:begin]}{draw(PIECE)}{name[end:]}", f"{{x,{name}}}"])))
    return "/".join(names)


def braces_expanded(text: str) -> set[str]:
    """What bash makes of it, but for braces that stay: the outermost first."""
    for start in (index for index, one in enumerate(text) if one == "{"):
        depth, parts, begin = 0, [], start + 1
        for position in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0 or (depth == 1 and text[position] == ","):
                parts.append(text[begin:position])
                begin = position + 1
            if depth == 0:
                break
        if depth == 0 and len(parts) > 1:
            pairs = product((one for part in parts for one in braces_expanded(part)), braces_expanded(text[begin:]))
            return {text[:start] + middle + rest for middle, rest in pairs}
    return {text}


def is_like(path: Sequence[str], pattern: str) -> bool:
    wanted: list[str] = []
    for name in pattern.split("/"):
        if name == "..":
            del wanted[-1:]
        elif name not in ("", "."):
            wanted.append(name)
    return len(path) == len(wanted) and all(map(fnmatch.fnmatchcase, path, wanted))


@settings(deadline=None)
@given(pattern())
def test_globs_find_what_fnmatch_finds_in_the_whole_listing(pattern: str) -> None:
    with Memory().reading() as connection:
        tree = root(connection)
        found = set()
        for one in alternatives("/" + pattern):
            expected = [path for path in LISTING if is_like(path, one)]
            if one.endswith("/"):
                expected = [path for path in expected if not isinstance(NODES[path], File)]
            try:
                paths = [path for path, *_ in find_paths(tree, (), one)]
            except CommandError:
                paths = []
            assert paths == expected
            found.update(paths)
        expanded = braces_expanded("/" + pattern)
        if not any(one.endswith("/") or set("{}") & set(one) for one in expanded):
            assert found == {path for path in LISTING if any(is_like(path, one) for one in expanded)}


@given(st.text(alphabet="{},a", max_size=14))
def test_braces_are_those_of_bash_where_all_of_them_go(text: str) -> None:
    expanded = braces_expanded(text)
    if not any(set("{}") & set(one) for one in expanded):
        assert set(alternatives(text)) == expanded


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a", ["a"]),
        ("", [""]),
        ("{a,b}", ["a", "b"]),
        ("x{a,b}{c,d}y", ["xacy", "xady", "xbcy", "xbdy"]),
        ("a{b,c{d,e}}", ["ab", "acd", "ace"]),
        ("{,a}", ["", "a"]),
        ("{a}", ["{a}"]),
        ("{a,b", ["{a,b"]),
        ("/{topics/x,brokers}/1", ["/topics/x/1", "/brokers/1"]),
    ],
)
def test_braces_stand_for_alternatives(text: str, expanded: list[str]) -> None:
    assert alternatives(text) == expanded


def test_not_more_alternatives_than_can_be_tried() -> None:
    assert len(alternatives("{" + ",".join(map(str, range(1_000))) + "}")) == 1_000
    with pytest.raises(CommandError, match="too many"):
        alternatives("{" + ",".join(map(str, range(ALTERNATIVES_MAX))) + "}")
