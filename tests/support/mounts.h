/* SPDX-License-Identifier: BSD-2-Clause */
/* Mounts for this process only. */
#ifndef CAREFUL_TESTS_MOUNTS_H
#define CAREFUL_TESTS_MOUNTS_H

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>

/* Gives this process mounts of its own. Returns NULL, or why it cannot have them. */
static inline const char *private_mounts(void)
{
	if (unshare(CLONE_NEWNS))
		return errno == EPERM ? "needs root, for mounts" : "no mount namespaces";
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return errno == EINVAL ? "\"/\" is not a mount, as in a bare chroot" :
					 "may not change mounts";
	return NULL;
}

#endif /* CAREFUL_TESTS_MOUNTS_H */
