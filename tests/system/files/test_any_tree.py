"""Random trees go through two real carefulds and back unchanged.

CAREFUL_EXAMPLES=1000 tries this many new trees.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import transfers
from any_tree import TREES, build
from careful.address import resolve
from careful.daemon.route import Route
from careful.transfer.options import Options, Progress
from compare import assert_equal
from hosts import RUN, Host
from hypothesis import HealthCheck, given, settings

EXAMPLES = int(os.environ.get("CAREFUL_EXAMPLES", "0"))
ARCHIVE = Options(
    block_bytes=16384, preserve=True, links=True, hard_links=True, xattrs=True, fsync="none"
)


@settings(
    max_examples=EXAMPLES or 12,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(tree=TREES)
def test_archive__any_tree_there_and_back(
    shared_pair: tuple[Host, Host], tree: dict[bytes, Any]
) -> None:
    a, b = shared_pair
    socket = RUN / a.lab.instance(a.name) / "sock"
    route = Route(socket, "h1", resolve(a.lab.address("h2")), "h2")
    with tempfile.TemporaryDirectory(dir=b.export) as folder:
        source, local = Path(folder) / "tree", a.own / Path(folder).name
        source.mkdir()
        build(source, tree, [])
        remote = Path(folder).name
        got = transfers.get(route, [f"{remote}/tree/"], str(local), True, ARCHIVE, Progress())
        assert got.failures == []
        assert_equal(source, local)
        sent = transfers.put(route, [f"{local}/"], f"{remote}/back", True, ARCHIVE, Progress())
        assert sent.failures == []
        assert_equal(source, Path(folder) / "back")
        found = transfers.verify(route, f"{remote}/back", str(local), True, 4096)
        assert found.differences == []
        shutil.rmtree(local)
