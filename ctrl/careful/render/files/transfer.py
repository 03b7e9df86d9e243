"""The output of `get` and `put`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from careful.errors import shown
from careful.render.tables import alarm
from careful.units import counted, shown_rate
from careful.units import shown_bytes as size

if TYPE_CHECKING:
    from careful.transfer.options import FileResult
    from careful.transfer.result import Result


def _digest(one: FileResult) -> str | None:
    if one.digest is None:
        return None
    return f"{one.digest:064x}" if one.is_blake3 else f"{one.digest:016x}"


def _algorithm(one: FileResult) -> str:
    return "blake3" if one.is_blake3 else "xxh3-of-blocks"


def transfer_figures(report: Result) -> dict[str, object]:
    """Returns a transfer's result for JSON."""
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
        "newer": [{"name": name, "bytes": nbytes} for name, nbytes in report.newer],
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


def rehearsal(report: Result) -> str:
    """Lists what a transfer would do, and a total."""
    lines = [f"{one.source} -> {shown(one.destination)}" for one in report.files]
    lines += [f"delete {name}" for name in report.deleted]
    parts = [f"{counted(len(report.files), 'file')}, {size(report.moved_bytes)} to move"]
    counts = (
        (report.links, "link" if report.links == 1 else "links"),
        (report.directories, f"director{'y' if report.directories == 1 else 'ies'} to make"),
        (len(report.deleted), "to delete"),
        (len(report.equal), "equal"),
        (size(report.matched_bytes) if report.matched_bytes else 0, "of the rest equal"),
        (len(report.newer), "newer at the target"),
        (len(report.skipped), "skipped"),
        (len(report.failures), "FAILED"),
    )
    parts += [f"{count} {what}" for count, what in counts if count]
    return "\n".join([*lines, ", ".join(parts) + "; nothing was changed"])


def summary(report: Result) -> str:
    """Returns a transfer's result as a line; "" if there were only errors, printed before."""
    count = report.files_count
    parts = []
    left = report.equal or report.newer or report.links or report.deleted
    if count or not (report.failures or left):
        parts.append(f"{counted(count, 'file')}, {size(report.bytes)} in {report.seconds:.2f} s")
        parts.append(shown_rate(report.moved_bytes / report.seconds if report.seconds else 0.0))
    checked = report.first_checked
    if count == 1 and checked:
        kind = "BLAKE3 of both ends" if checked.is_blake3 else "XXH3 of blocks"
        parts.append(f"{kind} checked: {_digest(checked)}")
    elif checked:
        kind = "BLAKE3 of both ends" if checked.is_blake3 else "XXH3 of every block"
        parts.append(f"{kind} checked")
    elif count:
        parts.append("nothing checked")
    frames, epochs = report.lost
    lost = alarm(f"{counted(frames, 'frame')} lost, {counted(epochs, 'new epoch')}")
    resumed, matched = size(report.resumed_bytes), size(report.matched_bytes)
    equal, newer = (counted(len(one), "file") for one in (report.equal, report.newer))
    counts = (
        (report.resumed_bytes, f"{resumed} already there from an earlier transfer"),
        (report.matched_bytes, f"{matched} already equal"),
        (report.equal, f"{equal} equal and left alone"),
        (report.newer, f"{newer} newer at the target and left alone"),
        (report.links, counted(report.links, "link")),
        (report.deleted, f"{len(report.deleted)} deleted"),
        (report.retries, f"{counted(report.retries, 'piece')} retried"),
        (frames, lost),  # a new epoch alone may be that of a trial
        (report.skipped, f"{len(report.skipped)} skipped"),
    )
    parts += [text for count, text in counts if count]
    if len(report.failures) > 1 or (parts and report.failures):
        parts.append(alarm(f"{len(report.failures)} FAILED"))
    return ", ".join(parts)
