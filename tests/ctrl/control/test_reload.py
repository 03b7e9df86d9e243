"""Other options for all queues of an instance, or for none."""

from __future__ import annotations

import errno

import pytest
from careful.control.carefuld import reload
from careful.control.instance.instances import Instance
from careful.control.options.up_options import UpOptions
from careful.errors import CarefulError


@pytest.mark.parametrize(("number", "told"), [(errno.EINVAL, 0), (errno.ETIMEDOUT, 1)])
def test_send_all__a_queue_that_refuses_leaves_no_other_changed(
    monkeypatch: pytest.MonkeyPatch, number: int, told: int
) -> None:
    """A queue that does not answer may have the new options, so it gets the former ones, too."""
    queues = [Instance(name) for name in ("a", "a+1", "a+2")]
    said: dict[str, list[int | None]] = {}
    refuses = {""}

    def tell(one: Instance, options: UpOptions) -> None:
        said.setdefault(one.name, []).append(options.spin_us)
        if one.name in refuses:
            raise CarefulError(number, "", one.name)

    monkeypatch.setattr(reload, "_send", tell)
    before, after = UpOptions(spin_us=50), UpOptions(spin_us=7)
    for k, name in enumerate(("a", "a+1", "a+2")):
        refuses = {name}
        said.clear()
        with pytest.raises(CarefulError, match=name.replace("+", r"\+")):
            reload._send_all(queues, after, before)
        both = {one.name: [7, 50] for one in queues[:k]}
        assert said == {**both, name: [7, 50][: 1 + told]}
    refuses = set()
    said.clear()
    reload._send_all(queues, after, before)
    assert said == {one.name: [7] for one in queues}
