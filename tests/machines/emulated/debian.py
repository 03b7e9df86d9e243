"""A disk with Debian for `installed`. It has careful's packages, not yet installed.

Calls mmdebstrap, dpkg-deb, mke2fs, and for packages of an older commit git and its tools/package.
Slow results are stored under build/installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from laboratory.state import LabError

ROOT = Path(__file__).resolve().parents[3]
PACKAGES, PLACE = ROOT / "build/package", ROOT / "build/installed"
HOSTS = ("h1", "h2")
#: The packages of careful that a host needs.
OURS = ("careful", "python3-careful")
#: Packages of a machine besides careful's dependencies.
BASE = "systemd-sysv,udev,iproute2,procps,bpftool,python3-bpfcc,python3-prometheus-client"
IMAGE_MIB = 2048
#: Succeeds if carefuld answers, even if a peer is gone.
IS_UP = '/bin/sh -c "carefulctl status eth1 || [ $$? = 3 ]"'
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
    "etc/systemd/system/agent.service": "[Unit]\nDescription=what the test speaks to\n"
    "DefaultDependencies=no\nAfter=systemd-udevd.service\n[Service]\n"
    "ExecStart=/usr/bin/python3 /opt/agent.py\nKillMode=process\nRestart=always\n"
    "[Install]\nWantedBy=sysinit.target\n",
    # A unit that needs careful, like in `help services`.
    "etc/systemd/system/dependent.service": "[Unit]\nRequires=carefuld@eth1.service\n"
    "After=carefuld@eth1.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"
    f"ExecStart={IS_UP}\nExecStop={IS_UP}\n[Install]\nWantedBy=multi-user.target\n",
}


def command(*argv: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    if done.returncode:
        raise LabError(f"{argv[0]}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout


def _made(folder: Path) -> list[Path]:
    return [one for name in OURS for one in sorted(folder.glob(f"{name}_*.deb"))]


def packages() -> list[Path]:
    """Returns the packages that tools/package built.

    Raises:
        LabError: there are none.
    """
    made = _made(PACKAGES)
    if not made:
        raise LabError("there are no packages: run tools/package first")
    return made


def older(commit: str) -> list[Path]:
    """Returns the packages of an older commit, built once.

    Raises:
        LabError: they could not be built.
    """
    found = command("git", "-C", ROOT, "rev-parse", "--verify", f"{commit}^{{commit}}")
    kept = PLACE / f"from-{found[:12]}"
    if not _made(kept):
        _build(found.strip(), kept)
    return _made(kept)


def following() -> list[Path]:
    """Returns this commit's packages as a future release, whose socket has another number.

    Raises:
        LabError: they could not be built.
    """
    commit = command("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    kept, last = PLACE / f"next-{commit[:12]}", PLACE / "following"
    if not _made(kept):
        _build(commit, kept, _other_socket)
    return _renumbered(_made(kept), last)


def _other_socket(tree: Path) -> None:
    """Raises the number of the socket, like each change of its protocol."""
    path = tree / "datapath/include/careful/ipc.h"
    text, count = re.subn(
        r"(CAREFUL_IPC_VERSION = )(\d+),", lambda m: f"{m[1]}{int(m[2]) + 1},", path.read_text()
    )
    if count != 1:
        raise LabError(f"{path.name} has {count} numbers of the socket")
    path.write_text(text)


def _build(commit: str, kept: Path, edit: Callable[[Path], None] = lambda _: None) -> None:
    print(f"installed: building the packages of {commit[:12]}", flush=True)
    tree, log = PLACE / "older", kept.with_suffix(".log")
    shutil.rmtree(tree, ignore_errors=True)  # of a run that was killed
    command("git", "-C", ROOT, "worktree", "add", "--force", "--detach", tree, commit)
    try:
        edit(tree)
        with log.open("w") as out:
            done = subprocess.run(["nice", tree / "tools/package"], stdout=out, stderr=out)
        made = _made(tree / "build/package")
        if done.returncode or not made:
            raise LabError(f"tools/package of {commit[:12]} failed: {log} says why")
        kept.mkdir(exist_ok=True)
        for one in made:
            shutil.copyfile(one, kept / one.name)
    finally:
        command("git", "-C", ROOT, "worktree", "remove", "--force", tree)


def _renumbered(made: list[Path], kept: Path) -> list[Path]:
    """Returns the same packages with a later version for dpkg."""
    tree = PLACE / "tree"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    version = command("dpkg-deb", "-f", made[0], "Version").strip()
    other = f"{version}+next"
    for one in made:
        shutil.rmtree(tree, ignore_errors=True)
        command("dpkg-deb", "-R", one, tree)
        control = tree / "DEBIAN/control"
        text = control.read_text().replace(f"(= {version})", f"(= {other})")
        control.write_text(text.replace(f"\nVersion: {version}\n", f"\nVersion: {other}\n"))
        command("dpkg-deb", "--root-owner-group", "-b", tree, kept / one.name)
    shutil.rmtree(tree)
    return _made(kept)


def image(made: dict[str, list[Path]]) -> Path:
    """Makes a disk with Debian and the packages' dependencies, but without the packages.

    Args:
        made: the packages, by their folder below /opt.
    """
    depends = ",".join(
        command("dpkg-deb", "-f", one, "Depends").strip() for all_ in made.values() for one in all_
    )
    names = {re.split("[(|:]", one)[0].strip() for one in depends.split(",")}  # python3:any, too
    names -= set(OURS)
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
    agent = (ROOT / "tests/machines/emulated/agent.py").read_text()
    (tree / "opt/agent.py").write_text(agent.replace("    main()\n", "    serve()\n"))
    (tree / "etc/machine-id").write_text(f"{1:032x}\n")  # else all units would be enabled
    for folder, all_ in made.items():
        (tree / "opt" / folder).mkdir()
        for one in all_:
            shutil.copyfile(one, tree / "opt" / folder / one.name)
    units = ("systemd-networkd.service", "agent.service")
    command("systemctl", f"--root={tree}", "enable", *units)
    disk.unlink(missing_ok=True)
    command("mke2fs", "-q", "-t", "ext4", "-d", tree, disk, f"{IMAGE_MIB}M")
    shutil.rmtree(tree)
    return disk
