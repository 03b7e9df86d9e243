/* SPDX-License-Identifier: BSD-2-Clause */
/* What an --export says. */
#ifndef DAEMON_EXPORT_OPTION_H
#define DAEMON_EXPORT_OPTION_H

#include <stddef.h>

#include "files/block.h"

/*
 * DIR[:rw|:ro[,owners][,devices][,host=ADDRESS]...], the addresses numeric; among several, the
 * export is called as the last component of DIR. What it is given lasts as long as the process.
 * -EINVAL or -ENOMEM, and why.
 */
int export_option(struct block_export_options *export, const char *arg, char *why, size_t bytes);

#endif /* DAEMON_EXPORT_OPTION_H */
