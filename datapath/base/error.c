// SPDX-License-Identifier: BSD-2-Clause
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

int explain_option(struct careful_error *error, int rc, const char *option, const char *format, ...)
{
	va_list args;

	if (error) {
		error->option = option;
		va_start(args, format);
		vsnprintf(error->text, sizeof(error->text), format, args);
		va_end(args);
	}
	return rc;
}
