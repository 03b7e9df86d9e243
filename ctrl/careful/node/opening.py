"""Opens an instance of libcareful, or attaches to carefuld's."""

from __future__ import annotations

import errno
import os

from careful._abi import CData, error_text, ffi, lib
from careful.errors import check


def _carefuld_on(ifname: str) -> str:
    """Returns what to do if a carefuld runs on an interface; else ""."""
    from careful.control.instance import instances

    if not any(one.here and one.ifname == ifname for one in instances.running()):
        return ""
    ways = "use careful.attach(), for files careful.files.connect()"
    return f"carefuld runs on {ifname}: {ways}, or carefulctl down {ifname}"


#: Advice for a user of Python, by whether the instance is attached, and errno.
_ADVICE = {
    (False, errno.ENOKEY): " (carefulctl key new, then keys=DIR)",
    (True, errno.EACCES): " (carefulctl up --group)",
}


def open_instance(options: dict[str, object], name: str) -> CData:
    """Returns C's instance; arguments and errors are those of engine.Engine."""
    is_attached = "path" in options
    kind = "careful_attach_options" if is_attached else "careful_options"
    raw, texts = ffi.new(f"struct {kind} *"), []
    for field, raw_value in options.items():
        if isinstance(raw_value, str):
            texts.append(ffi.new("char[]", os.fsencode(raw_value)))
            raw_value = texts[-1]
        setattr(raw, field, raw_value)
    instance, error = ffi.new("struct careful **"), ffi.new("struct careful_error *")
    rc = (lib.careful_attach if is_attached else lib.careful_open)(raw, instance, error)
    text = error_text(error) + _ADVICE.get((is_attached, -rc), "")
    if rc == -errno.EBUSY and not is_attached:
        text = _carefuld_on(str(options["ifname"])) or text
    check(rc, "" if name in text else name, text)
    return instance[0]
