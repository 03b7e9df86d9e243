"""Closes objects and descriptors at the end of a `with`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class Closing(ABC):
    """An object that `with` closes at the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Ends the use of the object."""


@contextmanager
def descriptor(fd: int) -> Iterator[int]:
    """Yields an open descriptor, and closes it at the end."""
    try:
        yield fd
    finally:
        os.close(fd)
