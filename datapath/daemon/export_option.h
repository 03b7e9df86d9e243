/* SPDX-License-Identifier: BSD-2-Clause */
/* Parses the value of --export. */
#pragma once

#include "files/block.h"

/* Parses DIR[:rw|:ro[,owners][,devices][,host=ADDRESS]...] with numeric addresses. DIR's last
 * component names the export. The caller frees path and hosts. Returns -EINVAL or -ENOMEM with the
 * reason in *error. */
int export_option(struct block_export_options *export, const char *arg,
		  struct careful_error *error);
