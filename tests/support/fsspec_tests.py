"""fsspec's own tests of file systems, on the files of a lab host, run by pytest on another host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from careful.files.filesystem import CarefulFileSystem
from fsspec.tests import abstract


class OfCareful(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self) -> CarefulFileSystem:
        return CarefulFileSystem("h2", auto_mkdir=True, sync=False)

    @pytest.fixture
    def fs_path(self, fs: CarefulFileSystem) -> Iterator[str]:
        fs.mkdir("/own")
        yield "/own"
        fs.rm("/own", recursive=True)


class TestCopy(OfCareful, abstract.AbstractCopyTests):  # type: ignore[misc]
    pass


class TestGet(OfCareful, abstract.AbstractGetTests):  # type: ignore[misc]
    pass


class TestPut(OfCareful, abstract.AbstractPutTests):  # type: ignore[misc]
    pass


class TestOpen(OfCareful, abstract.AbstractOpenTests):  # type: ignore[misc]
    pass


class TestPipe(OfCareful, abstract.AbstractPipeTests):  # type: ignore[misc]
    pass
