"""Reads the kernel's data on interfaces."""

from __future__ import annotations

import socket

from careful.control import links


def test_addresses__of_an_interface_by_its_number() -> None:
    assert "127.0.0.1" in links.addresses(socket.if_nametoindex("lo"))
    assert not links.addresses(2147483000)
