"""A host's files, and the same as a file system of fsspec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from careful.daemon.route import Route
from careful.files import AsyncHost, Host


@pytest.fixture
def host(route: Route) -> Iterator[Host]:
    """A Host of the export."""
    with Host(AsyncHost("h2", lambda: route)) as one:
        yield one


@pytest.fixture
def fs(route: Route) -> Iterator[Any]:
    """The file system of the export."""
    pytest.importorskip("fsspec")
    from careful.files.filesystem import CarefulFileSystem
    from fsspec.asyn import sync

    one = CarefulFileSystem("h2", skip_instance_cache=True)
    one._connect = lambda: AsyncHost("h2", lambda: route)  # type: ignore[method-assign]
    yield one
    sync(one.loop, one._close)
