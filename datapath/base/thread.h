/* SPDX-License-Identifier: BSD-2-Clause */
/* Our threads in the application's process. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Starts a thread that blocks all signals: these are the application's. Returns 0 or -errno. */
static inline int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *),
			       void *arg)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack_bytes);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -rc;
}
