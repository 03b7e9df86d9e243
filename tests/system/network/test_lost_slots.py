"""A session moves to another peer slot, for the asker's earlier address."""

from __future__ import annotations

import json
from functools import partial

from fault_kinds import restore_address, use_other_address
from fault_rig import EXPORTED, FILE_BYTES
from faults import moving, reached
from hosts import Host, Hosts, finish, make_file, wait_for


def in_use(server: Host) -> dict[str, int]:
    """Returns the epochs of the sessions with the other host, by address."""
    return {one["address"]: one["epochs"] for one in server.status()["peers"]}


def renewed(server: Host, before: dict[str, int]) -> bool:
    """Reports whether a session or an epoch has begun since."""
    return in_use(server) != before


def test_address_then_mtu__transfer_goes_on(hosts: Hosts) -> None:
    """The asker's address and the MTU change during a transfer, and no byte is lost."""
    asker, server = hosts(hosts=2)
    held = make_file(server.export / EXPORTED, FILE_BYTES, 1)
    sent = make_file(asker.export / EXPORTED, FILE_BYTES, 2)
    # The peer releases a put's file when its session was silent for this long.
    server.up("--stall", "1s")
    asker.up()
    for words in (
        ("get", f"{server.name}:{EXPORTED}", asker.own / "copy"),
        ("put", asker.export / EXPORTED, f"{server.name}:copy"),
    ):
        asker.down()
        use_other_address(asker)
        asker.up()
        asker.ctl("get", "-f", f"{server.name}:{EXPORTED}", asker.own / "first")
        restore_address(asker)
        before = in_use(server)
        with moving(asker, 2, *words) as job:
            reached(job, 0.1)
            for mtu in ("3000", "3826"):
                asker.lab.run(asker.name, "ip", "link", "set", "eth1", "mtu", mtu)
                wait_for(partial(renewed, server, before), "new epoch")
            status, out, errors = finish(job)
        assert (status, errors) == (0, "")
        # The session of the asker's current address continues without a restart.
        assert json.loads(out.splitlines()[-1])["moved_bytes"] == FILE_BYTES
        assert in_use(server)["10.77.0.1"] > before.get("10.77.0.1", 0)
    assert (asker.own / "copy").read_bytes() == held
    assert (server.export / "copy").read_bytes() == sent
    assert [one.name for one in server.export.iterdir() if one.name.startswith(".")] == []
