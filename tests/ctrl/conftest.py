"""Fixtures of the control plane's tests: a directory served as a peer's export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from careful.address import resolve
from careful.daemon.route import Route
from fake_daemon import FakeDaemon


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """The exported directory."""
    path = tmp_path / "export"
    path.mkdir()
    return path


@pytest.fixture
def daemon(tmp_path: Path, export: Path) -> Iterator[FakeDaemon]:
    """A carefuld whose only peer exports `export`."""
    one = FakeDaemon(tmp_path, export)
    yield one
    one.stop()


@pytest.fixture
def route(daemon: FakeDaemon) -> Route:
    """The route to the daemon."""
    return Route(daemon.path, "test", resolve("10.0.0.2"), "h2")
