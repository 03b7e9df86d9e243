/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that are not listed fail with ENOSYS; libc then tries an older call if there is one. The
 * filter does not see io_uring's operations: confine.c and storage/ limit these. */
#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "daemon/process/syscalls.h"
#include "base/error.h"

static const int allowed[] = {
	/* memory and threads */
	SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
	SCMP_SYS(mlock), /* lent memory */
	SCMP_SYS(mlock2), SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq),
	SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_setaffinity),
	SCMP_SYS(getcpu), SCMP_SYS(gettid), SCMP_SYS(getpid), SCMP_SYS(geteuid), SCMP_SYS(capget),
	SCMP_SYS(capset), SCMP_SYS(exit), SCMP_SYS(exit_group),
	/* signals; a failed assertion kills the process itself */
	SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sigaltstack), SCMP_SYS(tgkill), SCMP_SYS(restart_syscall),
	/* time */
	SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	/* the loop */
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(eventfd2), SCMP_SYS(signalfd4),
	SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register),
	/* descriptors */
	SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(pread64), SCMP_SYS(preadv), SCMP_SYS(preadv2),
	SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(pwrite64), SCMP_SYS(pwritev),
	SCMP_SYS(pwritev2), SCMP_SYS(lseek), SCMP_SYS(close), SCMP_SYS(dup), SCMP_SYS(dup2),
	SCMP_SYS(dup3), SCMP_SYS(fcntl), SCMP_SYS(flock), SCMP_SYS(ioctl), SCMP_SYS(memfd_create),
	/* files */
	SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(stat), SCMP_SYS(fstat),
	SCMP_SYS(lstat), SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(statfs), SCMP_SYS(fstatfs),
	SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink),
	SCMP_SYS(readlinkat), SCMP_SYS(getdents64), SCMP_SYS(mkdir), SCMP_SYS(mkdirat),
	SCMP_SYS(rmdir), SCMP_SYS(unlink), SCMP_SYS(unlinkat), SCMP_SYS(linkat),
	SCMP_SYS(symlinkat), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2),
	SCMP_SYS(umask), SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat), SCMP_SYS(fchown),
	SCMP_SYS(fchownat), SCMP_SYS(utimensat), SCMP_SYS(ftruncate), SCMP_SYS(fallocate),
	SCMP_SYS(fsync), SCMP_SYS(fdatasync), SCMP_SYS(syncfs), SCMP_SYS(sync_file_range),
	SCMP_SYS(fadvise64), SCMP_SYS(copy_file_range), SCMP_SYS(getxattr), SCMP_SYS(lgetxattr),
	SCMP_SYS(fgetxattr), SCMP_SYS(listxattr), SCMP_SYS(llistxattr), SCMP_SYS(flistxattr),
	SCMP_SYS(setxattr), SCMP_SYS(lsetxattr), SCMP_SYS(fsetxattr), SCMP_SYS(removexattr),
	SCMP_SYS(lremovexattr), SCMP_SYS(fremovexattr),
	/* sockets that are open, and clients' sockets */
	SCMP_SYS(bind), SCMP_SYS(listen), SCMP_SYS(accept4), SCMP_SYS(sendto), SCMP_SYS(sendmsg),
	SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(getsockname), SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt), SCMP_SYS(shutdown),
	/* updates of maps, and of the XDP mode; carefuld keeps no CAP_BPF */
	SCMP_SYS(bpf),
	/* random numbers, limits, the kernel's version */
	SCMP_SYS(getrandom), SCMP_SYS(prlimit64), SCMP_SYS(uname)
};

static const int families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };

/* Allows some calls, depending on their arguments. */
static int add_conditional(scmp_filter_ctx filter)
{
	/* No thread may enter a new namespace. clone3() hides its flags; libc has clone(). */
	const uint32_t namespaces = 0x7e020080; /* CLONE_NEW* */
	const struct scmp_arg_cmp thread = SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces, 0);
	const struct scmp_arg_cmp no_code = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, thread);

	if (!rc)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, no_code);
	if (!rc)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, no_code);
	for (size_t i = 0; !rc && i < sizeof(families) / sizeof(families[0]); i++)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
				      SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i], 0));
	return rc;
}

static int add_all(scmp_filter_ctx filter)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(allowed) / sizeof(allowed[0]); i++)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	return rc ? rc : add_conditional(filter);
}

int syscalls_confine(struct careful_error *error)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	int rc;

	if (!filter)
		return explain(error, -ENOMEM, "out of memory");
	rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	if (!rc)
		rc = add_all(filter);
	if (!rc)
		rc = seccomp_load(filter);
	seccomp_release(filter);
	if (rc)
		return explain(error, rc, "cannot install the seccomp filter: %s", strerror(-rc));
	return 0;
}
