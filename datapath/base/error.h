/* SPDX-License-Identifier: BSD-2-Clause */
/* One line for the user: why a call failed and what to do, or what a check found. */
#pragma once

#include <stddef.h>

#include <careful/careful.h>

#define explain(error, rc, ...) explain_option(error, rc, NULL, __VA_ARGS__)
/* Explains what is wrong with an option, a field of struct careful_options. */
#define refuse(error, rc, field, ...)                                                      \
	explain_option(error, rc, ((void)offsetof(struct careful_options, field), #field), \
		       __VA_ARGS__)

/* Fills *error unless NULL; returns rc. */
__attribute__((format(printf, 4, 5))) int
explain_option(struct careful_error *error, int rc, const char *option, const char *format, ...);
