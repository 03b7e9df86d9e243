"""`careful.event.join()`: what is refused before any host is asked."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("careful._binding")

import careful
from careful.event import ajoin, join


def test_join__a_node_beside_carefuld_is_refused_at_once() -> None:
    node: Any = SimpleNamespace(_engine=SimpleNamespace(attached=True), ifname="eth1")
    for joined in (
        lambda: join(node, ["h1", "h2"], rank=0),
        lambda: asyncio.run(ajoin(node, ["h1", "h2"], rank=0)),
    ):
        with pytest.raises(careful.CarefulError, match=r"careful\.open\(\)") as caught:
            joined()
        assert caught.value.errno == errno.EOPNOTSUPP
        assert caught.value.what == "eth1"
