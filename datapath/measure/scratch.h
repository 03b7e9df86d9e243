/* SPDX-License-Identifier: BSD-2-Clause */
/* The scratch region that wire.h declares: where measured stores go and gets come from. */
#ifndef SERVICE_SCRATCH_H
#define SERVICE_SCRATCH_H

#include <careful/careful.h>

enum { SCRATCH_BYTES = 1 << 20 };

/* Memory whose contents mean nothing, shared by all that measure. */
void *scratch_memory(void);
/* Offers it to all peers until careful_close(). */
int scratch_serve(struct careful *instance);

#endif /* SERVICE_SCRATCH_H */
