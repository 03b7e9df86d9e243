"""Two machines of `installed`, a long transfer between them, and checks of both."""

from __future__ import annotations

from laboratory.state import LabError

from emulated.hosts import Host, wait_for

#: Rate of a transfer that a step disturbs.
RATE = "128KiB"


class Pair:
    """Two machines with careful; before: h2's files without it."""

    def __init__(self, hosts: list[Host]) -> None:
        self.h1, self.h2 = hosts
        self.hosts = hosts
        self.before = ""

    def same(self, here: str, there: str) -> None:
        """Compares a file of h1 with one of h2.

        Raises:
            LabError: they differ.
        """
        places = ((self.h1, here), (self.h2, there))
        if len({host.run("sha256sum", path).split()[0] for host, path in places}) != 1:
            raise LabError(f"{here} differs from h2's {there}")

    def purge(self, host: Host) -> None:
        """Removes careful in any state.

        Raises:
            LabError: files are left.
        """
        host.run("dpkg", "--purge", "careful", "python3-careful")
        host.sh(
            'test -z "$(pgrep carefuld)"; test ! -e /run/careful; test ! -e /sys/fs/bpf/careful; '
            "if ss -xl | grep careful; then exit 1; fi; "
            "if ip -d link show eth1 | grep -q xdp; then exit 1; fi"
        )
        if host is self.h2:
            left = sorted(set(self.h2.listed().splitlines()) ^ set(self.before.splitlines()))
            if left:
                raise LabError(f"left: {' '.join(left)}")

    def transfer(self, to: str, rate: str = RATE) -> None:
        """Begins a long transfer, and waits until it moves."""
        before = self.bytes_moved()
        self.h1.sh(
            "systemd-run -q --unit=transfer -p Type=exec -p RemainAfterExit=yes "
            f"/usr/bin/carefulctl get --outlast 900s --rate-limit {rate} h2:big {to}"
        )
        wait_for(lambda: self.bytes_moved() > before + (1 << 20), "it moves")

    def bytes_moved(self) -> int:
        (found,) = self.h1.status()
        return sum(int(one["rx_bytes"]) for one in found["peers"])

    def state(self, key: str) -> str:
        """Returns a property of the transfer's unit."""
        return self.h1.show(key, "transfer")

    def ended(self, to: str) -> None:
        """Waits until the transfer ends.

        Raises:
            LabError: it failed, or the file is wrong.
        """
        wait_for(lambda: self.state("SubState") != "running", "the transfer ends")
        if self.state("ExecMainStatus") != "0" or self.state("Result") != "success":
            said = self.h1.run("journalctl", "-u", "transfer", "-o", "cat")
            raise LabError(f"the transfer: {said}")
        self.h1.run("systemctl", "stop", "transfer")
        self.same(to, "/srv/data/big")

    def session(self) -> tuple[str, int, int]:
        """Returns carefuld's process at h2, and the epochs and losses of its session."""
        ((peer,),) = (one["peers"] for one in self.h2.status())
        return self.h2.pid(), peer["epochs"], peer["lost_here_frames"] + peer["lost_there_frames"]
