/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the system calls that carefuld may not make while it serves, in a child with its filter. */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "daemon/process/syscalls.c" /* NOLINT(bugprone-suspicious-include) */

struct call {
	const char *name;
	long number;
	long args[6];
};

static const char *const no_args[] = { "/bin/true", NULL };

/* Without the filter each would succeed for root, or fail with another errno. */
static const struct call refused[] = {
	{ "execve", SYS_execve, { (long)"/bin/true", (long)no_args, (long)&no_args[1] } },
	{ "execveat", SYS_execveat, { AT_FDCWD, (long)"/bin/true", (long)no_args } },
#ifdef SYS_fork /* arm64 has clone() alone */
	{ "fork", SYS_fork, { 0 } },
#endif
	{ "clone of a namespace", SYS_clone, { CLONE_NEWUSER | SIGCHLD } },
	{ "clone3", SYS_clone3, { 0 } },
	{ "unshare", SYS_unshare, { 0 } },
	{ "setns", SYS_setns, { -1, 0 } },
	{ "chroot", SYS_chroot, { (long)"/" } },
	{ "pivot_root", SYS_pivot_root, { (long)"/", (long)"/" } },
	{ "mount", SYS_mount, { (long)"none", (long)"/", (long)"tmpfs", MS_REMOUNT } },
	{ "umount2", SYS_umount2, { (long)"/nowhere", 0 } },
	{ "open_tree", SYS_open_tree, { AT_FDCWD, (long)"/", 0 } },
	{ "fsopen", SYS_fsopen, { (long)"tmpfs", 0 } },
	{ "ptrace", SYS_ptrace, { PTRACE_TRACEME } },
	{ "process_vm_readv", SYS_process_vm_readv, { 1 } },
	{ "pidfd_getfd", SYS_pidfd_getfd, { -1, 0, 0 } },
	{ "kill", SYS_kill, { 0, 0 } },
	{ "setuid", SYS_setuid, { 0 } },
	{ "setresuid", SYS_setresuid, { -1, -1, -1 } },
	{ "setgroups", SYS_setgroups, { 0, 0 } },
	{ "init_module", SYS_init_module, { 0 } },
	{ "finit_module", SYS_finit_module, { -1 } },
	{ "kexec_load", SYS_kexec_load, { 0 } },
	{ "reboot", SYS_reboot, { 0 } },
	{ "swapoff", SYS_swapoff, { (long)"/nowhere" } },
	{ "sethostname", SYS_sethostname, { 0, 0 } },
	{ "settimeofday", SYS_settimeofday, { 0 } },
	{ "keyctl", SYS_keyctl, { 0 } },
	{ "userfaultfd", SYS_userfaultfd, { 0 } },
	{ "perf_event_open", SYS_perf_event_open, { 0 } },
	{ "open_by_handle_at", SYS_open_by_handle_at, { -1 } },
	{ "mknodat", SYS_mknodat, { -1, (long)"x", 0 } },
	{ "connect", SYS_connect, { -1 } },
	{ "socket of packets", SYS_socket, { AF_PACKET, SOCK_RAW } },
	{ "socket of vsock", SYS_socket, { AF_VSOCK, SOCK_STREAM } },
	{ "memory to execute",
	  SYS_mmap,
	  { 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1 } },
	{ "memory made executable", SYS_mprotect, { 0, 4096, PROT_EXEC } },
};

static long make(const struct call *call)
{
	const long *a = call->args;
	long rc = syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);

	return rc < 0 ? -errno : rc;
}

static void *other(void *arg)
{
	int *pipe_fds = arg;
	char byte;

	CHECK_EQ(read(pipe_fds[0], &byte, 1), 1);
	CHECK_EQ(make(&refused[0]), -ENOSYS);
	return NULL;
}

/* Runs run() in a confined child; it must succeed. */
static void confined(void (*run)(void))
{
	struct careful_error error;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
		if (syscalls_confine(&error)) {
			fprintf(stderr, "%s\n", error.text);
			_exit(1);
		}
		run();
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static void try_all(void)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		long rc = make(&refused[i]);

		if (rc != -ENOSYS) {
			fprintf(stderr, "%s: %ld\n", refused[i].name, rc);
			_exit(1);
		}
	}
}

static void test_calls__that_are_not_needed_are_refused(void)
{
	confined(try_all);
}

static void *nothing(void *arg)
{
	return arg;
}

/* Uses threads and their memory, files, and carefuld's kinds of sockets. */
static void work(void)
{
	pthread_t thread;
	void *found = NULL;
	int fd;

	CHECK_EQ(pthread_create(&thread, NULL, nothing, &fd), 0);
	CHECK_EQ(pthread_join(thread, &found), 0);
	CHECK(found == &fd);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && write(fd, "x", 1) == 1 && !close(fd));
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && !close(fd));
	free(malloc(64 << 20));
}

static void test_calls__that_are_needed_are_made(void)
{
	confined(work);
}

/* The thread that waits for softirqs runs already. */
static void in_threads(void)
{
	static int pipe_fds[2];
	struct careful_error error;
	pthread_t thread;

	CHECK_EQ(pipe(pipe_fds), 0);
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQ(pthread_create(&thread, NULL, other, pipe_fds), 0);
	CHECK_EQ(syscalls_confine(&error), 0);
	CHECK_EQ(write(pipe_fds[1], "x", 1), 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void test_threads__that_run_already_are_confined_too(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		in_threads();
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

int main(void)
{
	RUN(test_calls__that_are_not_needed_are_refused);
	RUN(test_calls__that_are_needed_are_made);
	RUN(test_threads__that_run_already_are_confined_too);
	return 0;
}
