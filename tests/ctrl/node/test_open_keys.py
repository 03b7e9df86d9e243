"""`careful.open()` with keys and sealed frames: two programs, and one without keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from careful.control.options.keys import Keys
from lab import MakeLab

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
options = {"seal": sys.argv[3]} if sys.argv[3:] else {}
if sys.argv[2] != "-":
    options["keys"] = sys.argv[2]
with careful.open("eth1", peers=2, **options) as node:
    peer = node.connect(sys.argv[1])
    print(node.info()["keyed"], peer.request(7, b"abc" * 300).result(60).payload == b"cba" * 300)
    peer.request(8, b"").result(60)
"""
#: Puts keys in /etc/careful/keys for one program only.
AT_HOME = """
mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work" &&
mount -t overlay none -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc &&
mkdir -p /etc/careful && cp -a "$2" /etc/careful/keys || exit 77
shift 2
exec "$@"
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

    def client(*args: object, at_home: bool = False) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", CLIENT, addresses[1], *map(str, args)]
        if at_home:
            (tmp_path / "etc").mkdir(exist_ok=True)
            mount = ["unshare", "-m", "sh", "-c", AT_HOME, "sh", tmp_path / "etc", one.directory]
            argv = [*map(str, mount), *argv]
        done: subprocess.CompletedProcess[str] = lab.run("h1", *argv, check=False)
        return done

    assert "it does not trust our key, or we have none" in client("none").stderr
    # By default the keys are those of `carefulctl up`.
    home = client("-", "auth", at_home=True)
    if home.returncode != 77:
        assert "seals frames differently" in home.stderr
        assert "we have none" in client("none", at_home=True).stderr
    assert "seals frames differently" in client(one.directory, "auth").stderr
    done = client(one.directory, "encrypt")
    assert done.stdout == "True True\n", done.stderr
    assert server.wait(60) == 0
    if home.returncode == 77:
        pytest.skip("no overlayfs: /etc/careful was not looked at")


def test_open__seals_with_hosts_by_name(make_lab: MakeLab, tmp_path: Path) -> None:
    """The node seals frames as `up` does with the same configuration."""
    keys, path = Keys(tmp_path / "keys"), tmp_path / "careful.toml"
    keys.new()
    path.write_text(
        '[nodes]\nfriend = "10.9.9.9"\n'
        f'[up]\nkeys = "{keys.directory}"\nseal = "encrypt,off@friend"\n'
    )
    program = f"import careful\nwith careful.open('eth1', config='{path}'): print('open')"
    lab = make_lab()
    done = lab.run("h1", sys.executable, "-c", program, check=False)
    assert done.stdout == "open\n", done.stderr
