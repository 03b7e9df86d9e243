/* SPDX-License-Identifier: BSD-2-Clause */
/* A fuzzer's input, read from front to back; zeros follow. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct input {
	const uint8_t *data;
	size_t bytes;
};

static inline uint64_t take(struct input *in, size_t n)
{
	uint64_t value = 0;

	for (size_t i = 0; i < n && in->bytes; i++) {
		value = value << 8 | *in->data++;
		in->bytes--;
	}
	return value;
}

static inline uint8_t take8(struct input *in)
{
	return (uint8_t)take(in, 1);
}

static inline uint16_t take16(struct input *in)
{
	return (uint16_t)take(in, 2);
}

static inline uint32_t take32(struct input *in)
{
	return (uint32_t)take(in, 4);
}

/* Takes up to n bytes of input; *got: how many there were. */
static inline const uint8_t *take_bytes(struct input *in, size_t n, uint32_t *got)
{
	const uint8_t *p = in->data;

	*got = (uint32_t)(n < in->bytes ? n : in->bytes);
	in->data += *got;
	in->bytes -= *got;
	return p;
}

/* Returns the number of the next new descriptor: unchanged at the end if none is left open. */
static inline int lowest_fd(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

/* Checks an invariant; a failure ends the run as a finding. */
#define MUST(condition)                                                                           \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                  \
		}                                                                                 \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif /* FUZZ_INPUT_H */
