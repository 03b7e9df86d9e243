"""What the commands about running instances print for people."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from careful.control.status import BOUNDS, slow_clients
from careful.errors import meaning, shown
from careful.report.tables import table
from careful.units import shown_bytes as size

if TYPE_CHECKING:
    from careful.control.daemon import Down
    from careful.control.doctor import Finding
    from careful.control.tune import Plan, Tune
    from careful.control.tuner import Row
    from careful.transfer.options import FileResult
    from careful.transfer.protocol.block import Attr, Entry
    from careful.transfer.report import Report


def effect(found: dict[str, Any]) -> str:
    """What is in effect on an instance: two lines."""
    wait = found["wait"]
    if wait == "adaptive":
        wait += f", spinning {found['spin_us']} µs"
    bound = BOUNDS.get(found["receive_bound"], found["receive_bound"])
    copy = "zero-copy" if found["zerocopy"] else "copy"
    lines = [
        f"{found['ifname']}: {found['driver']}, XDP {found['xdp_mode']}, {copy}, "
        f"MTU {found['mtu_bytes']}, port {found['port']}, wait {wait}",
        f"  window W {found['window_buffers']} buffers = R {found['receive_buffers']} "
        f"(bounded by {bound}) / P {found['peers_max']} peers, "
        f"updates from {found['update_threshold_buffers']} owed, "
        f"UMEM {size(found['umem_bytes'])}{' in hugepages' if found['hugepages'] else ''}",
    ]
    return "\n".join(lines)


def _counts(found: dict[str, int]) -> list[tuple[str, int]]:
    return [(name, value) for name, value in found.items() if value]


def status(found: dict[str, Any]) -> str:
    """One instance: what is in effect, peers, and the counters that are not 0."""
    head = f"instance {found['instance']}, carefuld {found['pid']}, log {found['log']}"
    parts = [head, effect(found)]
    rows = [
        (
            one["node"] or one["name"] or "?",
            one["address"],
            one["state"] + (f": {one['error']}" if one["error"] else ""),
            f"{one['credits_free']}/{one['credits_window']}",
            one["buffers_owed"],
            one["buffers_kept"],
            "yes" if one["withholding"] else "no",
            size(one["tx_bytes"]),
            size(one["rx_bytes"]),
            one["lost_frames"] + one["lost_there_frames"],
            one["epochs"],
        )
        for one in found["peers"]
    ]
    columns = ["peer", "address", "state", "credits", "owed", "kept", "withheld"]
    columns += ["sent", "received", "lost", "epochs"]
    parts.append(table("", columns, rows) if rows else "  no peers")
    for name in slow_clients(found):
        parts.append(f"  credits of {name} are withheld: its frames are kept by a slow client here")
    counted = _counts(found["counters"])
    xdp = _counts(found["xdp_counters"])
    names = [*((name, value, "") for name, value in counted)]
    names += [(name, value, "XDP") for name, value in xdp]
    if names:
        parts.append(table("", ["counter", "count", "where"], names))
    if found["xdp_counters_error"]:
        parts.append(f"  XDP's counters: {found['xdp_counters_error']}")
    return "\n".join(parts)


def findings(found: Iterable[Finding]) -> str:
    """What doctor found, a line each."""
    mark = {"ok": "ok", "warn": "warn", "fail": "FAIL", "unknown": "?"}
    lines = []
    for one in found:
        advice = f" ({one.advice})" if one.advice else ""
        lines.append(f"{mark[one.state]:4}  {one.stage:10} {one.text}{advice}")
    return "\n".join(lines)


def plan(one: Plan) -> str:
    """Fragment sizes of a class in a few words."""
    if one.is_fixed:
        return f"{one.first_bytes} fixed"
    ratio, down = one.ratio_q16 / 65536, one.down_ratio_q16 / 65536
    return (
        f"{one.first_bytes} ×{ratio:.3f} +{one.step_bytes} to {one.peak_bytes}, "
        f"then ×{down:.3f} +{one.down_step_bytes}"
    )


def _class_range(first: int, last: int, count: int) -> str:
    from careful.control.tune import class_bytes

    low = class_bytes(first - 1) + 1 if first else 0
    if last == count - 1:
        return f"from {size(low)}" if first else "all"
    return f"{low} … {class_bytes(last)}"


def tuning(rows: Sequence[tuple[str, Tune]]) -> str:
    """Plans and minpulse per peer and message-size class; equal classes in one line."""
    shown_rows = []
    for who, one in rows:
        pulses = ", ".join(f"{name} {value}" for name, value in one.minpulse_bytes.items())
        start = 0
        for index, current in enumerate(one.plans):
            if index + 1 < len(one.plans) and one.plans[index + 1] == current:
                continue
            label = _class_range(start, index, len(one.plans))
            shown_rows.append((who, label, plan(current), pulses))
            start, who, pulses = index + 1, "", ""
    columns = ["peer", "message (bytes)", "fragments (bytes)", "minpulse (bytes)"]
    return table("", columns, shown_rows)


def _when(time_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_ns / 1e9))


def listing(entries: Sequence[Entry], long: bool) -> str:
    """Entries of a directory; with `long`, as `ls -l` shows them."""
    ordered = sorted(entries, key=lambda entry: entry.name)
    if not long:
        return "\n".join(shown(one.name) + ("/" if one.attr.is_dir else "") for one in ordered)
    return "\n".join(_long(one) for one in ordered)


def _long(entry: Entry) -> str:
    if entry.error and not entry.attr.mode:
        return f"?????????? {'?':>12} {'?':16} {shown(entry.name)}"
    attr: Attr = entry.attr
    target = f" -> {shown(entry.target)}" if entry.target else ""
    mode = stat.filemode(attr.mode)
    return f"{mode} {attr.bytes:>12} {_when(attr.mtime_ns)} {shown(entry.name)}{target}"


def entry(one: Entry) -> dict[str, Any]:
    """An entry of a listing, for JSON; a name that is no UTF-8 comes in hex, too."""
    found: dict[str, Any] = {
        "name": shown(one.name),
        "mode": stat.filemode(one.attr.mode),
        "bytes": one.attr.bytes,
        "mtime_ns": one.attr.mtime_ns,
        "target": shown(one.target) or None,
        "error": meaning(one.error) if one.error else None,
    }
    if found["name"] != one.name:
        found["name_hex"] = os.fsencode(one.name).hex()
    return found


def _digest(one: FileResult) -> str | None:
    if one.digest is None:
        return None
    return f"{one.digest:064x}" if one.is_blake3 else f"{one.digest:016x}"


def _algorithm(one: FileResult) -> str:
    return "blake3" if one.is_blake3 else "xxh3-of-blocks"


def transfer_figures(report: Report) -> dict[str, Any]:
    """What a transfer did, for JSON."""
    return {
        "files": [
            {
                "source": one.source,
                "destination": shown(one.destination),
                "bytes": one.bytes,
                "digest": _digest(one),
                "digest_algorithm": None if one.digest is None else _algorithm(one),
                "retries": one.retries,
                "resumed_bytes": one.resumed_bytes,
                "matched_bytes": one.matched_bytes,
            }
            for one in report.files
        ],
        "failures": [{"name": name, "error": text} for name, text in report.failures],
        "skipped": [{"name": name, "kind": kind} for name, kind in report.skipped],
        "equal": [{"name": name, "bytes": nbytes} for name, nbytes in report.equal],
        "brought": [{"name": name, "bytes": nbytes} for name, nbytes in report.brought],
        "deleted": report.deleted,
        "files_count": report.files_count,
        "links_count": report.links,
        "directories_count": report.directories,
        "total_bytes": report.bytes,
        "elapsed_s": report.seconds,
        "moved_bytes": report.moved_bytes,
        "rate_gbit_per_s": report.moved_bytes * 8 / report.seconds / 1e9
        if report.seconds
        else None,
        "retries_count": report.retries,
        "lost_frames": report.lost.frames,
        "new_epochs_count": report.lost.epochs,
        "resumed_bytes": report.resumed_bytes,
        "matched_bytes": report.matched_bytes,
    }


def counted(number: int, noun: str) -> str:
    """So many of something, in words: 1 file, 2 files."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def rehearsal(report: Report) -> str:
    """What a transfer would do, a line each, and in sum."""
    lines = [f"{one.source} -> {shown(one.destination)}" for one in report.files]
    lines += [f"delete {name}" for name in report.deleted]
    parts = [f"{counted(len(report.files), 'file')}, {size(report.moved_bytes)} to move"]
    counts = (
        (report.links, "link" if report.links == 1 else "links"),
        (report.directories, f"director{'y' if report.directories == 1 else 'ies'} to make"),
        (len(report.deleted), "to delete"),
        (len(report.equal), "equal"),
        (size(report.matched_bytes) if report.matched_bytes else 0, "of the rest equal"),
        (len(report.brought), "there from an earlier transfer"),
        (len(report.skipped), "skipped"),
        (len(report.failures), "FAILED"),
    )
    parts += [f"{count} {what}" for count, what in counts if count]
    return "\n".join([*lines, ", ".join(parts) + "; nothing was changed"])


def summary(report: Report) -> str:
    """What a transfer did, in a line."""
    rate = report.moved_bytes * 8 / report.seconds / 1e9 if report.seconds else 0.0
    count = report.files_count
    parts = [f"{counted(count, 'file')}, {size(report.bytes)} in {report.seconds:.2f} s"]
    parts.append(f"{rate:.2f} Gbit/s")
    checked = report.first_checked
    if count == 1 and checked:
        kind = "BLAKE3 of both ends" if checked.is_blake3 else "XXH3 of blocks"
        parts.append(f"{kind} checked: {_digest(checked)}")
    elif checked:
        kind = "BLAKE3 of both ends" if checked.is_blake3 else "XXH3 of every block"
        parts.append(f"{kind} checked")
    elif count:
        parts.append("nothing checked")
    if report.brought or report.resumed_bytes:
        whole = f" ({counted(len(report.brought), 'file')})" if report.brought else ""
        parts.append(f"{size(report.resumed_bytes)}{whole} were there from an earlier transfer")
    if report.matched_bytes:
        parts.append(f"{size(report.matched_bytes)} were equal")
    if report.equal:
        parts.append(f"{counted(len(report.equal), 'file')} equal and left alone")
    if report.links:
        parts.append(counted(report.links, "link"))
    if report.deleted:
        parts.append(f"{len(report.deleted)} deleted")
    if report.retries:
        parts.append(f"{counted(report.retries, 'piece')} asked for again")
    if report.lost.frames or report.lost.epochs:
        frames, epochs = report.lost
        parts.append(f"{counted(frames, 'frame')} lost, {counted(epochs, 'new epoch')}")
    if report.skipped:
        parts.append(f"{len(report.skipped)} skipped")
    if report.failures:
        parts.append(f"{len(report.failures)} FAILED")
    return ", ".join(parts)


def down(ifname: str, done: Down) -> str:
    """What `down` did, in a line."""
    if done.process:
        return f"{ifname}: carefuld {done.process}"
    return f"{ifname}: {'leftovers removed' if done.cleared else 'careful was not up'}"


def tune_row(row: Row) -> dict[str, Any]:
    """What is in effect for a peer, for JSON."""
    from careful.control.tune import class_bytes

    classes = [
        {"class": index, "message_bytes_max": class_bytes(index), **vars(one)}
        for index, one in enumerate(row.tune.plans)
    ]
    return {
        "peer": row.peer,
        "slot": row.slot,
        "minpulse_bytes": row.tune.minpulse_bytes,
        "classes": classes,
    }


def clipped(fragment_bytes: int | None, frame_bytes: int) -> str:
    """A note where a fragment is larger than a frame of the device; "" otherwise."""
    if fragment_bytes is None or not frame_bytes or fragment_bytes <= frame_bytes:
        return ""
    return f"a frame has {frame_bytes} bytes, headers included: fragments are cut to what it holds"
