/* SPDX-License-Identifier: BSD-2-Clause */
/* For all C tests: checks that name their line, and skipping. */
#ifndef CAREFUL_TESTS_CHECK_H
#define CAREFUL_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

enum {
	TEST_SKIP = 77, /* ctest: SKIP_RETURN_CODE */
};

/* Ends the test and names the line; works with NDEBUG too. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__, \
				#condition);                                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Checks that two numbers are equal. */
#define CHECK_EQ(a, b)                                                                             \
	do {                                                                                       \
		long long check_a = (long long)(a), check_b = (long long)(b);                      \
                                                                                                   \
		if (check_a != check_b) {                                                          \
			fprintf(stderr, "%s:%d: %s: %s is %lld, %s is %lld\n", __FILE__, __LINE__, \
				__func__, #a, check_a, #b, check_b);                               \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

__attribute__((noreturn)) static inline void skip(const char *why)
{
	printf("SKIP: %s\n", why);
	exit(TEST_SKIP);
}

/* Reports a part of a test that this machine cannot run; tools/test prints the line. */
static inline void skip_part(const char *why)
{
	printf("SKIP: a part: %s\n", why);
}

#define RUN(test)                      \
	do {                           \
		printf("%s\n", #test); \
		fflush(stdout);        \
		test();                \
	} while (0)

#endif /* CAREFUL_TESTS_CHECK_H */
