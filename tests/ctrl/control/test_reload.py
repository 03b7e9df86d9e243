"""Other options for all queues of an instance, or for none."""

from __future__ import annotations

import errno

import pytest
from careful.control import reload
from careful.control.config import UpOptions
from careful.control.instances import Instance
from careful.errors import CarefulError


def test_tell_all__a_queue_that_refuses_leaves_no_other_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues = [Instance(name) for name in ("a", "a+1", "a+2")]
    has: dict[str, int | None] = {}
    mute = {""}

    def tell(one: Instance, options: UpOptions) -> None:
        if one.name in mute:
            raise CarefulError(errno.ETIMEDOUT, "does not answer", one.name)
        has[one.name] = options.spin_us

    monkeypatch.setattr(reload, "_tell", tell)
    before, after = UpOptions(spin_us=50), UpOptions(spin_us=7)
    for name, changed in ("a", {}), ("a+1", {"a": 50}), ("a+2", {"a": 50, "a+1": 50}):
        mute = {name}
        has.clear()
        with pytest.raises(CarefulError, match="does not answer"):
            reload._tell_all(queues, after, before)
        assert has == changed
    mute = set()
    reload._tell_all(queues, after, before)
    assert has == {"a": 7, "a+1": 7, "a+2": 7}
