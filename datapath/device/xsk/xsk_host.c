// SPDX-License-Identifier: BSD-2-Clause
/* Checks of the machine and this process. A container or sandbox can make each of them fail. */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "device/compat.h"
#include "device/xsk/xsk.h"

enum {
	FILES_MIN = 128, /* carefuld opens about 35 at start; the rest is for clients' files */
	KERNEL_OLDEST = 6 << 8 | 1, /* an older verifier refuses the XDP program */
	KERNEL_FRAGS = 6 << 8 | 6,
};

/* The inode of the machine's first user namespace (include/linux/proc_ns.h). */
static const ino_t first_user_namespace = 0xeffffffd;

bool xsk_can(unsigned int capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	return !syscall(SYS_capget, &header, data) &&
	       data[capability / 32].effective >> capability % 32 & 1;
}

static bool in_user_namespace(void)
{
	struct stat st;

	return !stat("/proc/self/ns/user", &st) && st.st_ino != first_user_namespace;
}

static int denied(struct careful_error *error, int rc, const char *call)
{
	return explain(
		error, rc, "%s is denied (%s): %s", call, strerror(-rc),
		in_user_namespace() ?
			"run careful as root of the machine, outside of this user namespace" :
			"allow it in the seccomp filter and the security policy of this "
			"container or service");
}

static int check_kernel(struct careful_error *error)
{
	unsigned int major = 0, minor = 0;
	struct utsname name;

	if (uname(&name) || sscanf(name.release, "%u.%u", &major, &minor) != 2)
		return explain(error, 0, "the version of this kernel cannot be read");
	if ((major << 8 | minor) < KERNEL_OLDEST)
		return explain(error, -ENOTSUP,
			       "Linux %s is too old: careful needs Linux 6.1 or later",
			       name.release);
	return explain(error, 0, "Linux %s%s", name.release,
		       (major << 8 | minor) >= KERNEL_FRAGS ?
			       "" :
			       ": one buffer must hold a frame (from Linux 6.6 on, several can)");
}

static int check_af_xdp(struct careful_error *error)
{
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (fd < 0 && errno != EPERM && errno != EACCES)
		return explain(error, -errno,
			       "this kernel has no AF_XDP sockets (%s): boot a kernel with "
			       "CONFIG_XDP_SOCKETS=y, such as Debian's",
			       strerror(errno));
	/* check_privilege() reports a missing capability. */
	if (fd < 0 && xsk_can(CAP_NET_RAW))
		return denied(error, -errno, "socket(AF_XDP)");
	if (fd >= 0)
		close(fd);
	return explain(error, 0, "this kernel has AF_XDP sockets");
}

static int check_privilege(struct careful_error *error)
{
	static const struct {
		unsigned int capability;
		const char *name;
	} needed[] = {
		{ CAP_NET_ADMIN, "CAP_NET_ADMIN" },
		{ CAP_NET_RAW, "CAP_NET_RAW" },
		{ CAP_BPF, "CAP_BPF" },
		{ CAP_PERFMON, "CAP_PERFMON" },
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		/* CAP_SYS_ADMIN includes the capabilities split from it in Linux 5.8. */
		bool split = needed[i].capability >= CAP_PERFMON;

		if (!xsk_can(needed[i].capability) && !(split && xsk_can(CAP_SYS_ADMIN)))
			return explain(error, -EPERM,
				       "no permission, %s is missing: run as root, or with "
				       "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON and "
				       "CAP_IPC_LOCK",
				       needed[i].name);
	}
	return explain(error, 0, "has the capabilities that careful needs");
}

static int check_bpf(struct careful_error *error)
{
	static const struct bpf_insn pass[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, NULL, "GPL", pass, 2, NULL);

	if (fd < 0)
		return denied(error, fd, "bpf(), which loads the XDP program,");
	close(fd);
	return explain(error, 0, "the kernel loads XDP programs");
}

static int check_files(struct careful_error *error)
{
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < FILES_MIN)
		return explain(error, -EMFILE,
			       "at most %llu open files are allowed, but careful needs %d: `ulimit "
			       "-n 1024`",
			       (unsigned long long)limit.rlim_cur, FILES_MIN);
	return explain(error, 0, "up to %llu (ulimit -n)", (unsigned long long)limit.rlim_cur);
}

static int check_bpffs(struct careful_error *error)
{
	struct statvfs fs;

	if (xsk_pins_mounted()) {
		if (!statvfs(BPFFS_DIR, &fs) && fs.f_flag & ST_RDONLY)
			return explain(error, -EROFS,
				       "bpffs is read-only: `mount -o remount,rw " BPFFS_DIR "`");
		return explain(error, 0, "is mounted");
	}
	if (access(BPFFS_DIR, F_OK))
		return explain(error, -errno,
			       "there is no " BPFFS_DIR ": `mount -t sysfs sysfs /sys`");
	if (!xsk_can(CAP_SYS_ADMIN))
		return explain(
			error, -EPERM,
			"no bpffs is mounted, and mounting it needs CAP_SYS_ADMIN: `mount -t bpf bpf " BPFFS_DIR
			"`");
	return explain(error, 0, "is not mounted yet; careful mounts it");
}

static int check_run(struct careful_error *error)
{
	if (!faccessat(AT_FDCWD, RUN_DIR, W_OK | X_OK, AT_EACCESS))
		return explain(error, 0, RUN_DIR " is writable");
	if (errno == ENOENT && !faccessat(AT_FDCWD, "/run", W_OK | X_OK, AT_EACCESS))
		return explain(error, 0, RUN_DIR " can be made");
	return explain(error, -errno,
		       RUN_DIR " cannot be written (%s): `mount -t tmpfs tmpfs /run`",
		       strerror(errno));
}

static int check_openat2(struct careful_error *error)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

	if (fd < 0)
		return denied(error, -errno, "openat2(), which opens files,");
	close(fd);
	return explain(error, 0, "paths stay below an export");
}

static int check_io_uring(struct careful_error *error)
{
	struct io_uring_params params = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 1, &params);

	if (fd < 0)
		return explain(error, 1, "io_uring is denied (%s): threads read and write files",
			       strerror(errno));
	close(fd);
	return explain(error, 0, "reads and writes files");
}

static int (*const checks[CAREFUL_CHECK_OPTIONS])(struct careful_error *error) = {
	[CAREFUL_CHECK_KERNEL] = check_kernel,
	[CAREFUL_CHECK_AF_XDP] = check_af_xdp,
	[CAREFUL_CHECK_PRIVILEGE] = check_privilege,
	[CAREFUL_CHECK_BPF] = check_bpf,
	[CAREFUL_CHECK_FILES] = check_files,
	[CAREFUL_CHECK_BPFFS] = check_bpffs,
	[CAREFUL_CHECK_RUN] = check_run,
	[CAREFUL_CHECK_OPENAT2] = check_openat2,
	[CAREFUL_CHECK_IO_URING] = check_io_uring,
};

int xsk_check_host(uint32_t check, struct careful_error *error)
{
	return checks[check](error);
}
