"""Debian's packages, unpacked under build/machines and not installed.

Owns a second state of apt (sources, lists and cache). It provides packages of Debian 13 and its
backports, and of other architectures, on Debian 12, and leaves this host's own sources alone.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from laboratory.state import LabError

PLACE = Path(__file__).parents[3] / "build/machines"
#: Suites besides the host's own, the newest first.
SUITES = ("trixie", "trixie-backports")
#: Packages to build careful for another architecture, and to run a machine of it.
FOREIGN = [
    *(f"lib{one}-dev" for one in ("bpf", "c6", "cap-ng", "seccomp", "sodium", "uring", "xdp")),
    "libxxhash-dev",
    "libgcc-12-dev",
    "bpftool",
    "busybox-static",
    "coreutils",
    "dash",
    "ethtool",
    "grep",
    "iproute2",
    "python3",
]


def run(*argv: str, cwd: Path | None = None) -> str:
    """Returns a command's output.

    Raises:
        LabError: it failed.
    """
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=cwd)
    if done.returncode:
        lines = [one for one in done.stderr.splitlines() if one.startswith(("E:", "dpkg"))]
        raise LabError(f"{argv[0]}: {(lines or ['failed'])[0]}")
    return done.stdout


def apt(
    tool: str, *argv: str, arch: str, cwd: Path | None = None, state: Path = PLACE / "apt"
) -> str:
    """Runs apt-get or apt-cache with the second state, like a machine of that architecture."""
    options = {
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache",
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "APT::Sandbox::User": "root",  # the user who can write to build/
    }
    return run(tool, "-q", *(f"-o{key}={value}" for key, value in options.items()), *argv, cwd=cwd)


def _mine() -> set[tuple[str, str]]:
    """Returns this host's source of Debian's main archive, and its suites."""
    format_ = "$(REPO_URI) $(CODENAME) $(COMPONENT)"
    rows = [one.split() for one in run("apt-get", "indextargets", "--format", format_).split("\n")]
    return {(row[0], row[1]) for row in rows if len(row) == 3 and row[2] == "main"}


def mirror() -> str:
    """Returns this host's source of Debian's archive.

    Raises:
        LabError: this host has no such source.
    """
    if shutil.which("apt-get") is None:
        raise LabError("apt-get is missing: packages come from Debian's archive")
    places = sorted({uri for uri, suite in _mine() if "-" not in suite})
    if not places:
        raise LabError("apt-get has no lists of Debian's archive: run `apt-get update`")
    return places[0]


def _begin(state: Path, sources: list[str]) -> None:
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text("\n".join(sources) + "\n")


def refresh(arch: str) -> None:
    """Fetches the lists of Debian's main archive from this host's source."""
    place = mirror()
    sources = [f"deb {uri} {suite} main" for uri, suite in sorted(_mine())]
    _begin(PLACE / "apt", [*sources, *(f"deb {place} {suite} main" for suite in SUITES)])
    apt("apt-get", "update", arch=arch)


def unpacked(name: str, suite: str, arch: str, packages: list[str]) -> Path:
    """Makes a root with these packages and their dependencies, unpacked, not configured.

    Args:
        name: the file's name under build/machines; made once.
        suite: Debian's, as trixie.
        arch: as amd64 or arm64.
        packages: without recommended packages.

    Raises:
        LabError: they cannot be downloaded or unpacked.
    """
    place, temporary, state = PLACE / name, PLACE / f".{name}", PLACE / f"apt-{name}"
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_dir():
            return place
        _begin(state, [f"deb {mirror()} {suite} main"])
        (state / "status").touch()
        options = [f"-oDir::State::status={state / 'status'}", "-oDebug::NoLocking=1"]
        apt("apt-get", *options, "update", arch=arch, state=state)
        options += ["--no-install-recommends", "--download-only", "--yes"]
        apt("apt-get", *options, "install", *packages, arch=arch, state=state)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for folder in ("bin", "lib", "sbin", "lib64"):  # merged, like in base-files
            (temporary / f"usr/{folder}").mkdir(parents=True, exist_ok=True)
            (temporary / folder).symlink_to(f"usr/{folder}")
        for package in sorted((state / "cache/archives").glob("*.deb")):
            tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
            run_tar = ["tar", "-C", str(temporary), "-x", "--keep-directory-symlink"]
            done = subprocess.run(run_tar, stdin=tar.stdout, capture_output=True, text=True)
            if tar.wait() or done.returncode:
                raise LabError(
                    f"dpkg-deb: {package.name} cannot be unpacked: {done.stderr.strip()}"
                )
        shutil.rmtree(state)
        temporary.rename(place)
    return place


def foreign(arch: str) -> Path:
    """Makes a root of Debian 12 for another architecture."""
    return unpacked(f"root-{arch}", "bookworm", arch, FOREIGN)
