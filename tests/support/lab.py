"""Private labs for tests: the fixtures `lab` and `make_lab`.

Owns the labs of a test session, each under its own name, so that sessions run in parallel. A lab
ends with its test, and so does every process that the test started there. The next session removes
the remains of a killed session.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import loaded
import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/lab"
STATE = Path("/run/careful-lab")
_numbers = itertools.count(1)


@cache
def missing() -> str:
    """Returns why no lab can be made here; "" if one can."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    try:
        socket.socket(44, socket.SOCK_RAW).close()  # AF_XDP
    except OSError as error:
        return f"this kernel gives no AF_XDP socket: {error.strerror}"
    probe = ["unshare", "--net", "ip", "link", "add", "v1", "type", "veth", "peer", "name", "v2"]
    done = subprocess.run(probe, capture_output=True, text=True)
    return f"no network namespaces with veth: {done.stderr.strip()}" if done.returncode else ""


def tool(*args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs tools/lab; an error quotes its failure."""
    # `up --hops` builds its emulator first.
    done = subprocess.run([TOOL, *args], capture_output=True, text=True, timeout=280)
    assert not check or done.returncode == 0, done.stderr
    return done


def made() -> dict[str, Any]:
    """Returns what a report names, its commit among it."""
    sys.path.append(str(TOOL.parent))
    from laboratory.report import made

    found: dict[str, Any] = made()
    return found


def keep_xdp(mode: str, folder: Path, driver: str = "veth") -> None:
    """Lets carefuld remember a mode, so that --xdp auto does not measure with the first peer."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    kept = {"schema": 1, "kernel": os.uname().release, "mode": mode}
    (folder / f"xdp.{driver}.json").write_text(json.dumps(kept) + "\n")


def nobody(group: str = "65534") -> list[str]:
    """Returns words that run a command with only the privilege to read: other users cannot read a
    checkout in /root.
    """
    if os.geteuid():
        return []
    user = ["--reuid=65534", f"--regid={group}", "--clear-groups"]
    return ["setpriv", *user, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


class Lab:
    """Hosts h1 … hN, and ways to run things on them.

    measures_xdp: --xdp auto measures; otherwise native is remembered, so that a measurement does
        not disturb the test.
    """

    def __init__(
        self,
        hosts: int = 2,
        mtu: int | None = None,
        name: str | None = None,
        hops: Path | None = None,
        options: Sequence[str] = (),
        measures_xdp: bool = False,
        queues: Sequence[int] = (),
    ) -> None:
        self.name = name or f"t{os.getpid()}-{next(_numbers)}"
        self.hosts = [f"h{k}" for k in range(1, hosts + 1)]
        self._started: list[subprocess.Popen[Any]] = []
        size = ["--mtu", str(mtu)] if mtu else []
        size += ["--hops", str(hops), *options] if hops else []
        size += ["--queues", *map(str, queues)] if queues else []
        owner = ["--owner", str(os.getpid())]
        tool("up", "--name", self.name, "--hosts", str(hosts), *size, *owner)
        if not measures_xdp:
            for host in self.hosts:
                keep_xdp("native", self.kept(host))

    def links(self, *options: str) -> list[dict[str, Any]]:
        """Returns the settings and the work of each emulated link (tools/lab links)."""
        shown = tool("links", "--name", self.name, "--json", *options).stdout
        found: list[dict[str, Any]] = json.loads(shown)["links"]
        return found

    def instance(self, host: str) -> str:
        """Returns the CAREFUL_INSTANCE of a host."""
        return f"{self.name}-{host}"

    def netns(self, host: str) -> Path:
        """Returns the host's namespace, for setns()."""
        return Path("/run/netns") / f"careful-{self.name}-{host}"

    def kept(self, host: str) -> Path:
        """Returns the host's state directory."""
        return STATE / self.name / "kept" / host

    def address(self, host: str, family: int = 4) -> str:
        """Returns the host's address on eth1."""
        return f"10.77.0.{host[1:]}" if family == 4 else f"fd77::{int(host[1:]):x}"

    def environment(self, host: str) -> dict[str, str]:
        """Returns the variables that `tools/lab exec` adds."""
        return {
            "CAREFUL_INSTANCE": self.instance(host),
            "CAREFUL_CONFIG": str(STATE / self.name / "careful.toml"),
            "CAREFUL_FLEET": str(STATE / self.name / "fleet.toml"),
            "CAREFUL_STATE_DIR": str(self.kept(host)),
        }

    def argv(self, host: str, *command: str | Path) -> list[str]:
        """Returns the words that run `command` on a host, like `tools/lab exec`."""
        given = (f"{name}={value}" for name, value in self.environment(host).items())
        inside = ["nsenter", f"--net={self.netns(host)}", "--", "env", *given]
        return [*inside, *map(str, command)]

    def run(
        self, host: str, *command: str | Path, check: bool = True, timeout: float = 200, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on a host to its end; an error quotes its failure.

        A plain carefulctl runs in a process that has already loaded it.
        """
        if command[0] == "carefulctl" and not more:
            words = [str(one) for one in command[1:]]
            done = loaded.run(words, self.environment(host), self.netns(host), timeout)
        else:
            more = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL} | more
            done = subprocess.run(self.argv(host, *command), timeout=timeout, **more)
        errors = f"{done.stdout or ''}{done.stderr or ''}"
        assert not check or done.returncode == 0, (
            f"{host}: {command} -> {done.returncode}\n{errors}"
        )
        return done

    def start(self, host: str, *command: str | Path, **more: Any) -> subprocess.Popen[str]:
        """Starts a command on a host, in its own session; it ends with the lab at the latest.

        The pid belongs to the command itself.
        """
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more
        process = subprocess.Popen(
            self.argv(host, *command), stdin=subprocess.DEVNULL, start_new_session=True, **more
        )
        self._started.append(process)
        return process

    def down(self) -> None:
        """Removes the lab and all its processes."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()
        tool("down", "--name", self.name, "--kill")


MakeLab = Callable[..., Lab]


@pytest.fixture(scope="session", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Gives `up` outside of labs a private state folder, and no XDP mode to measure."""
    folder = tmp_path_factory.mktemp("kept")
    folder.chmod(0o755)
    keep_xdp("native", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAREFUL_STATE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def lab_possible() -> None:
    """Skips if no lab can be made; else removes the remains of dead sessions."""
    if reason := missing():
        pytest.skip(reason)
    tool("sweep")


@pytest.fixture
def make_lab(lab_possible: None) -> Iterator[MakeLab]:
    """Makes labs: make_lab(hosts=3, mtu=1500), make_lab(hops=FILE). They end with the test."""
    made: list[Lab] = []

    def make(**options: Any) -> Lab:
        made.append(Lab(**options))
        return made[-1]

    yield make
    for lab in made:
        lab.down()


@pytest.fixture(scope="module")
def lab(lab_possible: None) -> Iterator[Lab]:
    """Two hosts on one link, shared by the tests of a module."""
    one = Lab()
    yield one
    one.down()


__all__: Sequence[str] = ["Lab", "MakeLab", "lab", "lab_possible", "make_lab", "tool"]
