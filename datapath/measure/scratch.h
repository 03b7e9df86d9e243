/* SPDX-License-Identifier: BSD-2-Clause */
/* The scratch region that wire.h declares, for measured stores and gets. */
#ifndef SERVICE_SCRATCH_H
#define SERVICE_SCRATCH_H

#include <careful/careful.h>

enum { SCRATCH_BYTES = 1 << 20 };

/* Returns memory with meaningless contents, shared by all measurements. */
void *scratch_memory(void);
/* Offers the memory to all peers until careful_close(). */
int scratch_serve(struct careful *instance);

#endif /* SERVICE_SCRATCH_H */
