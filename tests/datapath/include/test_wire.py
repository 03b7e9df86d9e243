"""The scapy layers match the C declarations that they are generated from."""

from __future__ import annotations

from typing import Any

import pytest
import scapy_layers as layers
import xxhash
from careful import _abi
from careful._abi import ffi, lib
from careful.transfer.protocol.batch import Item
from careful.transfer.protocol.entries import parse_listing
from hypothesis import assume, given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy_layers import (
    CarefulAbort,
    CarefulAm,
    CarefulBlockAttr,
    CarefulBlockEntry,
    CarefulBlockOpen,
    CarefulBulk,
    CarefulCtrl,
    CarefulHdr,
    CarefulListing,
)

LAYERS: list[tuple[type[Packet], str]] = [
    (CarefulHdr, "careful_hdr"),
    (CarefulAm, "careful_am"),
    (CarefulCtrl, "careful_ctrl"),
    (CarefulBlockOpen, "careful_block_open"),
    (CarefulBlockAttr, "careful_block_attr"),
    (CarefulBlockEntry, "careful_block_entry"),
]


def value_of(field: _abi.Field) -> st.SearchStrategy[Any]:
    if field.count is not None and field.item_bytes == 1:
        return st.binary(min_size=field.count, max_size=field.count)
    one = st.integers(0, (1 << 8 * field.item_bytes) - 1)
    return one if field.count is None else st.lists(one, min_size=field.count, max_size=field.count)


def values_of(struct: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({one.name: value_of(one) for one in _abi.layout(struct)})


def scapy_values(struct: str, values: dict[str, Any]) -> dict[str, Any]:
    names = {one.name: layers.scapy_name(one) for one in _abi.layout(struct)}
    return {names[name]: value for name, value in values.items()}


@pytest.mark.parametrize(("layer", "struct"), LAYERS)
def test_layer__size_and_offsets(layer: type[Packet], struct: str) -> None:
    fields = layer.fields_desc[: len(_abi.layout(struct))]
    offset = 0
    for ours, theirs in zip(fields, _abi.layout(struct), strict=True):
        assert ours.name == layers.scapy_name(theirs)
        assert offset == theirs.offset
        offset += theirs.size
    assert offset == _abi.sizeof(struct) == ffi.sizeof(f"struct {struct}")
    assert len(bytes(layer())) == offset


@pytest.mark.parametrize(("layer", "struct"), LAYERS)
@given(data=st.data())
def test_layer__bytes_are_the_struct(layer: type[Packet], struct: str, data: st.DataObject) -> None:
    values = data.draw(values_of(struct))
    expected = _abi.pack(struct, **values)
    assert bytes(layer(**scapy_values(struct, values))) == expected
    copy = ffi.new(f"struct {struct} *")
    ffi.memmove(copy, expected, len(expected))
    for field in _abi.layout(struct):
        raw = copy
        for part in field.name.split("."):
            raw = getattr(raw, part)
        if field.count is None:
            assert raw.to_bytes(field.item_bytes, "little") == values[field.name].to_bytes(
                field.item_bytes, "big"
            )


@given(values=values_of("careful_hdr"), payload=st.binary(max_size=100))
def test_frame__round_trip(values: dict[str, Any], payload: bytes) -> None:
    values["type"] &= ~lib.CAREFUL_CTRL_BIT
    packet = Ether() / IP() / UDP(dport=lib.CAREFUL_PORT_DEFAULT) / CarefulHdr(**values) / payload
    again = Ether(bytes(packet))
    assert isinstance(again[UDP].payload, CarefulHdr)
    assert bytes(again) == bytes(packet)
    assert {name: getattr(again[CarefulHdr], name) for name in values} == values


@given(values=values_of("careful_ctrl"))
def test_control__round_trip(values: dict[str, Any]) -> None:
    values["type"] |= lib.CAREFUL_CTRL_BIT
    assume(values["type"] != lib.CAREFUL_PING_ANSWER)  # of another format
    values = scapy_values("careful_ctrl", values)
    packet = IP() / UDP(dport=lib.CAREFUL_PORT_DEFAULT) / CarefulCtrl(**values)
    again = IP(bytes(packet))
    assert isinstance(again[UDP].payload, CarefulCtrl)
    assert {name: getattr(again[CarefulCtrl], name) for name in values} == values


def test_frame__computes_missing_fields() -> None:
    am = CarefulAm(kind="request", handler=5, args=[1, 2, 3, 4])
    raw = bytes(CarefulHdr(type="data", flags="first+last", seq=7) / am / b"hello")
    found = _abi.unpack("careful_hdr", raw)
    assert found["version"] == lib.CAREFUL_WIRE_VERSION
    assert found["frag_bytes"] == 5
    assert found["payload_crc"] == lib.careful_wire_crc32c(raw[48:], len(raw) - 48)
    check = found.pop("check")
    clean = _abi.pack("careful_hdr", **found)
    assert check == lib.careful_wire_hdr_check(ffi.from_buffer(clean))
    assert isinstance(CarefulHdr(raw).payload, CarefulAm)
    assert CarefulHdr(raw)[Raw].load == b"hello"


def test_frame__bulk_covers_the_am_alone() -> None:
    am = CarefulAm(kind="store")
    raw = bytes(CarefulHdr(type="data", flags="first+bulk") / am / b"payload")
    crc = _abi.unpack("careful_hdr", raw)["payload_crc"]
    assert crc == lib.careful_wire_crc32c(raw[48:96], 48)
    raw = bytes(CarefulHdr(type="data", flags="bulk") / b"payload")
    assert _abi.unpack("careful_hdr", raw)["payload_crc"] == 0


def bulk(flags: str, payload: Any, **fields: Any) -> Any:
    """Builds and dissects a fragment."""
    return CarefulHdr(bytes(CarefulHdr(type="data", flags=f"bulk+{flags}", **fields) / payload))


def test_bulk__data_and_digest_apart() -> None:
    digest = xxhash.xxh3_64_intdigest(b"payload")
    found = bulk("first+last+digest", CarefulAm(kind="get_data") / CarefulBulk(data=b"payload"))
    assert found.frag_bytes == 7
    assert (found[CarefulBulk].data, found[CarefulBulk].digest) == (b"payload", digest)
    found = bulk("last+digest", CarefulBulk(data=b"end", digest=5), frag_off=100)
    assert (found.frag_bytes, found[CarefulBulk].data, found[CarefulBulk].digest) == (3, b"end", 5)
    found = bulk("digest", CarefulBulk(data=b"middle"))
    assert (found.frag_bytes, found[CarefulBulk].data) == (6, b"middle")
    assert found[CarefulBulk].digest is None
    assert bytes(found)[48:] == b"middle"


def test_abort__names_the_errno() -> None:
    found = bulk("last+abort", CarefulAbort(errno=61))
    assert (found.frag_bytes, found[CarefulAbort].errno) == (4, 61)
    found = bulk("first+last+abort", CarefulAm(kind="get_data") / CarefulAbort(errno=5))
    assert (found.frag_bytes, found[CarefulAm][CarefulAbort].errno) == (4, 5)


def test_frame__update_has_nothing_behind_it() -> None:
    raw = bytes(CarefulHdr(type="update", cookie=7, seq=9, credits=4))
    assert len(raw) == 48
    found = CarefulHdr(raw)
    assert (found.type, found.credits, found.payload_crc) == (lib.CAREFUL_UPDATE, 4, 0)
    assert not found.payload


def test_listing__records() -> None:
    names = [(b"a", b""), (b"deep/er", b"target"), (b"12345678", b"")]
    entries = [CarefulBlockEntry(entry_name=name, target=target) for name, target in names]
    entries[0].bytes = 77
    raw = bytes(CarefulListing(entries=entries))
    assert len(raw) == 3 * 72 + 8 + 16 + 8
    ours = parse_listing(raw)
    assert [(one.name, one.target) for one in ours] == [(a.decode(), b.decode()) for a, b in names]
    assert ours[0].attr.bytes == 77
    again = CarefulListing(raw)
    assert [(one.entry_name, one.target) for one in again.entries] == names
    assert bytes(again) == raw


def test_frame__given_values_stay() -> None:
    raw = bytes(CarefulHdr(check=1, payload_crc=2, frag_bytes=3, version=9) / b"x")
    found = _abi.unpack("careful_hdr", raw)
    assert [found[name] for name in ("check", "payload_crc", "frag_bytes", "version")] == [
        1,
        2,
        3,
        9,
    ]


def test_control__check_is_computed() -> None:
    found = _abi.unpack("careful_ctrl", bytes(CarefulCtrl(type="hello", nonce=1, node_name=b"h1")))
    assert found["bytes"] == 112
    check = found.pop("check")
    clean = _abi.pack("careful_ctrl", **found)
    assert check == lib.careful_wire_message_check(ffi.from_buffer(clean), len(clean)) != 0


def test_stage__probe_and_its_answer() -> None:
    probe = bytes(CarefulHdr(type="ping", stage_limit="store", msg_id=3) / bytes(100))
    assert CarefulHdr(probe).stage_limit == lib.CAREFUL_STAGE_STORE
    raw = bytes(layers.CarefulStageAnswer(probe=3, stage="store", scratch="memory", turn_ns=5))
    assert len(raw) == 48  # never larger than a probe
    found = CarefulHdr(raw)
    assert isinstance(found, layers.CarefulStageAnswer)
    assert (found.probe, found.turn_ns, found.bytes) == (3, 5, 48)
    clean = raw[:4] + bytes(4) + raw[8:]
    assert found.check == lib.careful_wire_message_check(ffi.from_buffer(clean), len(clean)) != 0


def test_crc32c__known_value() -> None:
    assert lib.careful_wire_crc32c(b"123456789", 9) == 0xE3069283


def test_block_open__path() -> None:
    raw = bytes(
        CarefulHdr(type="data", flags="first+last")
        / CarefulAm(kind="request", handler=lib.CAREFUL_BLOCK_OPEN)
        / CarefulBlockOpen(flags="create", mode=0o644, path=b"a/b")
    )
    again = CarefulHdr(raw)
    assert again[CarefulBlockOpen].path == b"a/b"
    assert again[CarefulBlockOpen].path_bytes == 3
    assert again[CarefulBlockOpen].flags == lib.CAREFUL_BLOCK_CREATE


def test_block_batch__and_its_items() -> None:
    head = CarefulHdr(type="data", flags="first+last")
    asked = CarefulAm(kind="request", handler=lib.CAREFUL_BLOCK_BATCH)
    again = CarefulHdr(bytes(head / asked / layers.CarefulBlockBatch(bytes=77)))
    assert again[layers.CarefulBlockBatch].bytes == 77
    asked = CarefulAm(kind="request", handler=lib.CAREFUL_BLOCK_DIGEST)
    again = CarefulHdr(bytes(head / asked / layers.CarefulBlockRange(offset=5, algorithm="blake3")))
    assert again[layers.CarefulBlockRange].offset == 5
    raw = bytes(layers.CarefulBlockItem(op="file", item_name=b"a", data=b"contents"))
    assert raw == Item(lib.CAREFUL_ITEM_FILE, b"a", data=b"contents").packed()
    two = layers.CarefulBlockItem(raw + raw)
    assert (two.item_name, two.data, len(two.payload)) == (b"a", b"contents", len(raw))


def test_names__come_from_the_header() -> None:
    assert layers.CONTROL_TYPES[lib.CAREFUL_SYNC] == "sync"
    assert layers.FRAME_TYPES == {1: "data", 2: "update", 3: "ping", 4: "train", 5: "ack"}
    assert layers.STAGES == {1: "net_tx", 2: "net_rx", 3: "host_rx", 4: "store"}
    assert layers.AM_KINDS[lib.CAREFUL_AM_GET_DATA] == "get_data"
    assert str(CarefulHdr(flags=lib.CAREFUL_F_FIRST).flags) == "first"
