"""A disk with Debian on it, as tools/installed boots it: without careful, whose packages lie there.

Calls mmdebstrap, dpkg-deb and mke2fs. What takes long is kept under build/installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from laboratory.state import LabError

ROOT = Path(__file__).resolve().parents[2]
PACKAGES, PLACE = ROOT / "build/package", ROOT / "build/installed"
HOSTS = ("h1", "h2")
#: What a machine has beside what the package asks for.
BASE = "systemd-sysv,udev,iproute2,procps,bpftool,python3-bpfcc,python3-prometheus-client"
IMAGE_MIB = 2048
FILES = {
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    "etc/resolv.conf": "",
    "etc/systemd/network/10-eth1.link": "[Match]\nMACAddress=02:77:00:00:00:01 "
    "02:77:00:00:00:02\n[Link]\nName=eth1\n",
    **{
        f"etc/systemd/network/{name}.network": f"[Match]\nMACAddress=02:77:00:00:00:0{k}\n"
        f"[Network]\nAddress=10.77.0.{k}/24\nLinkLocalAddressing=no\n"
        for k, name in enumerate(HOSTS, 1)
    },
    "etc/systemd/system/agent.service": "[Unit]\nDescription=what tools/installed speaks to\n"
    "DefaultDependencies=no\nAfter=systemd-udevd.service\n[Service]\n"
    "ExecStart=/usr/bin/python3 /opt/agent.py\nKillMode=process\nRestart=always\n"
    "[Install]\nWantedBy=sysinit.target\n",
    # What needs careful, as `help services` has it.
    "etc/systemd/system/dependent.service": "[Unit]\nRequires=carefuld@eth1.service\n"
    "After=carefuld@eth1.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"
    "ExecStart=/usr/bin/carefulctl status eth1\n"
    "ExecStop=/usr/bin/carefulctl status eth1\n[Install]\nWantedBy=multi-user.target\n",
}


def command(*argv: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    if done.returncode:
        raise LabError(f"{argv[0]}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout


def packages() -> list[Path]:
    """What tools/package built, and the same as the next version.

    Raises:
        LabError: it has not.
    """
    made = next(PACKAGES.glob("careful_*.deb"), None)
    if made is None:
        raise LabError("there are no packages: run tools/package first")
    tree, newer = PLACE / "newer", PLACE / "newer.deb"
    shutil.rmtree(tree, ignore_errors=True)
    command("dpkg-deb", "-R", made, tree)
    control = tree / "DEBIAN/control"
    version = command("dpkg-deb", "-f", made, "Version").strip()
    control.write_text(
        control.read_text().replace(f"\nVersion: {version}\n", f"\nVersion: {version}+next\n")
    )
    command("dpkg-deb", "--root-owner-group", "-b", tree, newer)
    shutil.rmtree(tree)
    return [made, newer]


def image(made: list[Path]) -> Path:
    """A disk with Debian on it, and what the packages need, but not them."""
    depends = command("dpkg-deb", "-f", made[0], "Depends")
    names = {re.split("[(|:]", one)[0].strip() for one in depends.split(",")}  # python3:any, too
    tar, tree, disk = PLACE / "root.tar", PLACE / "root", PLACE / "disk"
    include = ",".join([*sorted(names), BASE])
    kept = PLACE / "include"
    if not tar.exists() or not kept.exists() or kept.read_text() != include:
        tar.unlink(missing_ok=True)
        command(
            "mmdebstrap", "--quiet", "--variant=minbase", f"--include={include}", "bookworm", tar
        )
        kept.write_text(include)
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    command("tar", "-C", tree, "-xf", tar)
    for name, text in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for folder in ("srv/data", "srv/more", "var/log/journal", "opt"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    agent = (ROOT / "tools/emulated/agent.py").read_text()
    (tree / "opt/agent.py").write_text(agent.replace("    main()\n", "    serve()\n"))
    (tree / "etc/machine-id").write_text(f"{1:032x}\n")  # else all units would be enabled
    for number, one in enumerate(made):
        shutil.copyfile(one, tree / f"opt/{number}.deb")
    units = ("systemd-networkd.service", "agent.service")
    command("systemctl", f"--root={tree}", "enable", *units)
    disk.unlink(missing_ok=True)
    command("mke2fs", "-q", "-t", "ext4", "-d", tree, disk, f"{IMAGE_MIB}M")
    shutil.rmtree(tree)
    return disk
