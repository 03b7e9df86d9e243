"""Measures a thousand ranges of a file by fsspec's cat_ranges: careful://, http:// from nginx, and
SFTP.

The SFTP server is OpenSSH's, over plain TCP without encryption; fsspec reads it by paramiko.

Each side has its own core; a round measures each in turn. Owns a lab. Needs root; tools/setup run
bench installs the other servers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_lab import PYTHON, beside, daemons, lab_up, pinned, run

ROUNDS = 9

FILE_BYTES, RANGES, PORT = 64 << 20, 1000, 8080
SIZES = (4096, 65536)
SFTP = """
import socket, subprocess
with socket.create_server(("10.77.0.2", 8022)) as listener:
    while True:
        one, _ = listener.accept()
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        subprocess.Popen(["/usr/lib/openssh/sftp-server"], stdin=one, stdout=one)
        one.close()
"""
WAYS = ("careful", "http", "sftp")
#: The least ratio of another's time to careful's.
FASTER_MIN = 5.0
READ = """
import fsspec, json, paramiko, random, socket, sys, time
from fsspec.implementations.sftp import SFTPFileSystem
class Named(socket.socket):
    def get_name(self):
        return "sftp"
class Plain(SFTPFileSystem):
    def _connect(self):
        self.client = Named(socket.AF_INET)
        self.client.connect((self.host, self.ssh_kwargs["port"]))
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ftp = paramiko.SFTPClient(self.client)
size, count, total, folder = *map(int, sys.argv[1:4]), sys.argv[4]
ways = {
    "careful": (fsspec.filesystem("careful", host="h2"), "file"),
    "http": (fsspec.filesystem("http"), "http://10.77.0.2:8080/file"),
    "sftp": (Plain(host="10.77.0.2", port=8022), folder + "/file"),
}
starts = [random.randrange(total - size) for _ in range(count)]
found = {}
for some in (50, count):  # the first time connects
    for name, (fs, path) in ways.items():
        began = time.monotonic()
        first = starts[:some]
        parts = fs.cat_ranges([path] * some, first, [start + size for start in first])
        found[name] = [time.monotonic() - began, [hash(part) for part in parts]]
assert all(parts == found["careful"][1] for _, parts in found.values())
print(json.dumps({name: seconds for name, (seconds, _) in found.items()}))
"""
NGINX = """
daemon off; worker_processes 1; error_log stderr; pid {folder}/pid;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; tcp_nopush off; keepalive_requests 1000000;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen 10.77.0.2:{port}; root {folder}; }}
}}
"""


@contextmanager
def exported(folder: Path) -> Iterator[None]:
    """Serves the folder by carefuld, nginx and SFTP."""
    conf = folder / "nginx.conf"
    conf.write_text(NGINX.format(folder=folder, port=PORT))
    with (
        daemons("--export", folder, pin=True),
        beside("h2", "nginx", "-c", conf),
        beside("h2", PYTHON, "-c", SFTP),
    ):
        time.sleep(1)
        yield


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns seconds by size and server, a value per round."""
    found: dict[str, dict[str, list[float]]] = {}
    with lab_up(), tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "file").write_bytes(bytes(range(256)) * (FILE_BYTES // 256))
        with exported(folder):
            for _ in range(args.rounds):
                for size in SIZES:
                    words = (size, RANGES, FILE_BYTES, folder)
                    took = json.loads(run(*pinned("h1", PYTHON, "-c", READ, *words)))
                    one = found.setdefault(str(size), {})
                    for way, seconds in took.items():
                        one.setdefault(way, []).append(round(seconds, 5))
    return {"ranges": RANGES, "seconds": found}


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether careful meets its bounds."""
    print(f"{kept['ranges']} ranges of" + "".join(f"{way:>13}" for way in WAYS))
    met = True
    for size, ways in kept["seconds"].items():
        cells, best = "", 0.0
        for way in WAYS:
            ratio = statistics.median(
                other / ours for ours, other in zip(ways["careful"], ways[way], strict=True)
            )
            best = max(best, ratio)
            cells += f"  {statistics.median(ways[way]) * 1e3:>5.0f} ms x{ratio:>3.1f}"
        print(f"{int(size):>8} bytes  {cells}")
        met &= best >= FASTER_MIN
    return met
