/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the kernel's list of locks, because a pid in the lock's file is valid only in the PID
 * namespace that wrote it. */
#include "base/lock.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Reads the list once; can miss a line while other processes lock and unlock. */
static int find_holder(int fd)
{
	unsigned int major_number, minor_number;
	unsigned long long inode;
	FILE *locks = fopen("/proc/locks", "re");
	int holder = 0, pid;
	struct stat file;
	char line[256];

	if (!locks)
		return 0;
	if (fstat(fd, &file))
		file.st_ino = 0;
	while (!holder && fgets(line, sizeof(line), locks))
		if (sscanf(line, "%*u: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_number, // NOLINT
			   &minor_number, &inode) == 4 &&
		    inode == file.st_ino && major_number == major(file.st_dev) &&
		    minor_number == minor(file.st_dev))
			holder = pid;
	fclose(locks);
	return holder;
}

int lock_holder(int fd)
{
	int holder = 0;

	for (int reads = 0; !holder && reads < 5; reads++)
		holder = find_holder(fd);
	return holder;
}

void lock_holder_name(int pid, char name[LOCK_HOLDER_BYTES])
{
	if (pid == getpid())
		snprintf(name, LOCK_HOLDER_BYTES, "this program itself");
	else if (pid)
		snprintf(name, LOCK_HOLDER_BYTES, "process %d", pid);
	else
		snprintf(name, LOCK_HOLDER_BYTES, "a process of another PID namespace");
}
