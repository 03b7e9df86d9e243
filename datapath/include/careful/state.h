/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What outlives an instance and a restart of the machine: small files in the state directory,
 * /var/lib/careful unless somebody says otherwise. A file there is whole or absent, and what
 * somebody else than root and us could have written is not believed.
 */
#ifndef CAREFUL_STATE_H
#define CAREFUL_STATE_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

/*
 * Reads a file of the directory; returns its bytes. -ENOENT: there is none. -EFBIG: it has more
 * than `bytes`; -EPERM: others may have written it; another -errno. Then, but for -ENOENT, *error
 * says why it is not used.
 */
int careful_state_read(const char *directory, const char *name, void *data, uint32_t bytes,
		       struct careful_error *error);
/*
 * Writes one, as a whole or not at all, and makes the directory if need be. It may take until
 * the file system next writes by itself to be on the disk. -errno, and *error says why it is not
 * kept.
 */
int careful_state_write(const char *directory, const char *name, const void *data, uint32_t bytes,
			struct careful_error *error);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_STATE_H */
