/* SPDX-License-Identifier: BSD-2-Clause */
/* Small files in the state directory (/var/lib/careful by default) that outlive an instance and a
 * reboot. A file is whole or absent. A file that anyone but root and this user could have written
 * is not used. */
#ifndef CAREFUL_STATE_H
#define CAREFUL_STATE_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* Reads a file of the directory; returns its length in bytes. -ENOENT (absent), -EFBIG (longer than
 * `bytes`), -EPERM (others may have written it), or another -errno. Except for -ENOENT, *error then
 * says why the file is not used. */
int careful_state_read(const char *directory, const char *name, void *data, uint32_t bytes,
		       struct careful_error *error);
/* Writes a file, whole or not at all; creates the directory if needed. The file reaches the disk
 * when the file system next writes back. Returns -errno on failure, with the reason in *error. */
int careful_state_write(const char *directory, const char *name, const void *data, uint32_t bytes,
			struct careful_error *error);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_STATE_H */
