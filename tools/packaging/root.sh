# shellcheck shell=bash
# Debian in a folder: sourced by tools/package and tests/machines/distributions. Needs mmdebstrap.

# make_root SUITE PACKAGES TAR: packs a root of that suite with these packages (comma-separated) and this
# machine's own certificates. Accepts an expired mirror; its packages still need a valid signature.
make_root() {
	local given=/usr/local/share/ca-certificates more=()
	compgen -G "$given/*.crt" >/dev/null && more=("--customize-hook=copy-in $given /usr/local/share"
		'--customize-hook=chroot "$1" sh -c "! command -v update-ca-certificates || update-ca-certificates" >/dev/null')
	mmdebstrap --quiet --variant=apt --include="$2" --aptopt='Acquire::Check-Valid-Until "false"' \
		--dpkgopt=force-unsafe-io "${more[@]}" "$1" - >"$3.part"
	mv "$3.part" "$3"
}

# in_root ROOT COMMAND…: runs the command there, with /proc, /sys and /dev, and ends its remaining
# processes. The folder becomes "/" of the mount namespace: mounts and user namespaces need that.
in_root() {
	# shellcheck disable=SC2016 # it is the inner shell's
	unshare --mount --pid --fork --kill-child bash -ec '
		mount --bind "$1" "$1"
		mount -t proc proc "$1/proc"
		mount -t sysfs sys "$1/sys"
		mount -t bpf bpf "$1/sys/fs/bpf"
		mount --rbind /dev "$1/dev"
		mount -t tmpfs run "$1/run"
		cd "$1" && shift
		mount --move . /
		exec chroot . "$@"' - "$@"
}
