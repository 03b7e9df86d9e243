"""The file of hosts: its settings and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from careful.errors import CarefulError
from careful.fleet.hosts import Host, chosen, parse, read

PATH = Path("fleet.toml")


def test_parse__a_host_s_own_over_those_of_all() -> None:
    text = """
    on = "tools/lab exec --name 'a b' {} --"
    up = "--export /srv:rw --insecure"
    [host.h2]
    [host.h1]
    on = "ssh -p 2222 root@{}"
    interface = "eth7"
    address = "10.0.0.1"
    up = ""
    """
    lab = ("tools/lab", "exec", "--name", "a b", "h2", "--")
    assert parse(text, PATH) == [
        Host("h2", lab, "h2", "eth1", "carefulctl", ("--export", "/srv:rw", "--insecure")),
        Host("h1", ("ssh", "-p", "2222", "root@h1"), "10.0.0.1", "eth7"),
    ]
    assert parse(text, PATH)[1].command("status") == [
        *("ssh", "-p", "2222", "root@h1", "carefulctl", "status")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no host"),
        ("host = 3", "names no host"),
        ("[host]\nh1 = 3", r"\[host.h1\] must be a table"),
        ("[host.'-o']", r"a name consists of"),
        ("[host.'h1;ls']", r"a name consists of"),
        ("[host.h1]\non = 3", "must be a text"),
        ("[host.h1]\nfoo = 'a'", "foo is unknown"),
        ('on = "ssh \'{}"\n[host.h1]', "No closing quotation"),
        ("address = 'a'\n[host.h1]", "belongs to one host"),
        ("[host.h1]\ninterface = ''", "must not be empty"),
        ("[host.h1]\n[host.h2]\naddress = 'h1'", "two hosts have the address h1"),
        ("[host.h1", "fleet.toml"),
    ],
)
def test_parse__names_the_fault(text: str, said: str) -> None:
    with pytest.raises(CarefulError, match=said):
        parse(text, PATH)


def test_read__a_missing_file_names_the_page(tmp_path: Path) -> None:
    with pytest.raises(CarefulError, match=r"fleet.toml: No such file.* carefulctl help hosts"):
        read(tmp_path / "fleet.toml")


def test_chosen__in_the_file_s_order() -> None:
    hosts = parse("[host.a]\n[host.b]\n[host.c]", PATH)
    assert [one.name for one in chosen(hosts, ("c", "a"))] == ["a", "c"]
    assert chosen(hosts, ()) == hosts
    with pytest.raises(CarefulError, match="there are a, b, c"):
        chosen(hosts, ("d",))
