"""A CarefulError also has Python's own class, so that programs need not compare errnos."""

from __future__ import annotations

import errno
import pickle

import pytest
from careful.errors import CarefulError, LossError, from_os


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, FileNotFoundError),
        (errno.EEXIST, FileExistsError),
        (errno.EACCES, PermissionError),
        (errno.EPERM, PermissionError),
        (errno.EISDIR, IsADirectoryError),
        (errno.ENOTDIR, NotADirectoryError),
        (errno.ETIMEDOUT, TimeoutError),
        (errno.ECONNREFUSED, ConnectionRefusedError),
        (errno.ECONNRESET, ConnectionResetError),
        (errno.ENOTCONN, ConnectionError),
        (errno.EHOSTUNREACH, ConnectionError),
        (errno.ENETUNREACH, ConnectionError),
        (errno.EAGAIN, BlockingIOError),
    ],
)
def test_careful_error__is_pythons_own_error(number: int, kind: type[OSError]) -> None:
    with pytest.raises(kind) as caught:
        raise CarefulError(number, "why", "h2:x")
    assert isinstance(caught.value, CarefulError)
    assert (caught.value.errno, str(caught.value)) == (number, "h2:x: why")
    assert caught.value.filename == "h2:x"


def test_careful_error__an_errno_without_a_class() -> None:
    for number in (errno.ENOSPC, errno.EROFS, 0):
        assert type(CarefulError(number)) is CarefulError
    assert str(CarefulError(errno.EROFS)).startswith("it is read-only there")
    assert str(CarefulError(errno.ENOTCONN, "", "carefuld")) == "carefuld: the connection has ended"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOSPC])
def test_careful_error__crosses_processes(number: int) -> None:
    error = CarefulError(number, "why", "h2:x")
    error.reason += "; more"
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), back.errno, str(back)) == (type(error), number, "h2:x: why; more")


def test_loss_error__is_an_aborted_connection() -> None:
    error = LossError(errno.ECONNABORTED, "the network lost 1 frame", "h2")
    assert isinstance(error, ConnectionAbortedError)
    back = pickle.loads(pickle.dumps(error))
    assert isinstance(back, LossError)
    assert str(back) == "h2: the network lost 1 frame"


def test_from_os__keeps_the_class() -> None:
    assert isinstance(from_os(FileNotFoundError(errno.ENOENT, "gone"), "a"), FileNotFoundError)


def test_careful_error__a_number_that_is_no_errno() -> None:
    """A peer may send any number."""
    assert str(CarefulError((1 << 32) - 1, "", "h2:x")) == "h2:x: error 4294967295"
