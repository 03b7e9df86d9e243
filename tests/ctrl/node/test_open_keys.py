"""`careful.open()` with keys, and with frames that are sealed: two programs, and one without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from careful.control.keys import Keys
from lab import MakeLab

pytest.importorskip("careful._binding")
pytestmark = pytest.mark.lab

SERVER = """
import sys, careful
with careful.open("eth1", peers=2, keys=sys.argv[1], seal=sys.argv[2]) as node:
    done = []
    node.handle(7, lambda message: message.payload[::-1])
    node.handle(8, lambda message: done.append(1))
    print("ready", flush=True)
    while not done:
        node.wait(1.0)
"""
CLIENT = """
import sys, careful
options = {"keys": sys.argv[2], "seal": sys.argv[3]} if sys.argv[2:] else {}
with careful.open("eth1", peers=2, **options) as node:
    peer = node.connect(sys.argv[1])
    print(node.info()["keyed"], peer.request(7, b"abc" * 300).result(60).payload == b"cba" * 300)
    peer.request(8, b"").result(60)
"""


def test_open__with_keys_and_sealed(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab()
    one, other = Keys(tmp_path / "one"), Keys(tmp_path / "other")
    addresses = lab.address("h1", 4), lab.address("h2", 4)
    one.trust(addresses[1], other.new())
    one.new()
    other.trust(addresses[0], str(one.public()))
    server = lab.start("h2", sys.executable, "-c", SERVER, other.directory, "encrypt")
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"

    def client(*args: object) -> subprocess.CompletedProcess[str]:
        argv = ("h1", sys.executable, "-c", CLIENT, addresses[1], *map(str, args))
        done: subprocess.CompletedProcess[str] = lab.run(*argv, check=False)
        return done

    assert "it does not trust our key, or we have none" in client().stderr
    assert "sealed otherwise than ours" in client(one.directory, "auth").stderr
    done = client(one.directory, "encrypt")
    assert done.stdout == "True True\n", done.stderr
    assert server.wait(60) == 0
