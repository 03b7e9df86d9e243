/* SPDX-License-Identifier: BSD-2-Clause */
#include "measure/signature.h"

#include <errno.h>

enum {
	MESSAGES_MAX = 16384,
	BURSTS_MAX = 1000,
	CAPACITY_MAX = 1024,
	NS_PER_MS = 1000000,
};

int signature_check(const struct careful_signature *s)
{
	if (!s->marks_count || s->marks_count > CAREFUL_SIGNATURE_MARKS || !s->bursts ||
	    s->bursts > BURSTS_MAX || !s->capacity || s->capacity > CAPACITY_MAX ||
	    s->compute_ns > (uint64_t)CAREFUL_BURST_MS * NS_PER_MS)
		return -EINVAL;
	for (uint32_t i = 0; i < s->marks_count; i++) {
		if (s->marks[i] <= (i ? s->marks[i - 1] : 0) || s->marks[i] > MESSAGES_MAX)
			return -EINVAL;
	}
	return 0;
}

uint32_t signature_burst_bytes(const struct careful_signature *s)
{
	return (uint32_t)(sizeof(struct careful_burst) +
			  s->marks_count * sizeof(struct careful_mark));
}

/* Spins for at least `ns`, like a computation. Sets *now_ns. Returns the time that passed. */
static uint64_t compute(const struct signature_layer *layer, uint64_t ns, uint64_t *now_ns)
{
	uint64_t began = layer->now_ns();

	do {
		*now_ns = layer->now_ns();
	} while (*now_ns - began < ns);
	return *now_ns - began;
}

static int poll_until(struct signature_layer *layer, uint32_t outstanding, uint64_t deadline_ns)
{
	while (!layer->status && layer->outstanding > outstanding) {
		int rc = layer->poll(layer);

		if (rc < 0)
			return rc;
		if (layer->now_ns() > deadline_ns)
			return -ETIMEDOUT;
	}
	return layer->status;
}

/* Issues one request, and receives replies that have arrived, as in P4. */
static int issue(struct signature_layer *layer, uint64_t deadline_ns)
{
	int rc = layer->outstanding < layer->capacity ?
			 layer->status :
			 poll_until(layer, layer->capacity - 1, deadline_ns);

	while (!rc && (rc = layer->issue(layer)) == -EAGAIN) {
		rc = layer->poll(layer);
		if (rc >= 0)
			rc = layer->now_ns() > deadline_ns ? -ETIMEDOUT : 0;
	}
	if (!rc) {
		layer->outstanding++;
		rc = layer->poll(layer);
	}
	return rc < 0 ? rc : 0;
}

static int burst(struct signature_layer *layer, const struct careful_signature *s,
		 struct careful_burst *out, struct careful_mark *marks)
{
	uint64_t computed_ns = 0, began_ns = layer->now_ns(), now_ns = began_ns;
	uint64_t deadline_ns = began_ns + (uint64_t)CAREFUL_BURST_MS * NS_PER_MS;
	uint32_t issued = 0;
	int rc = 0;

	for (uint32_t i = 0; i < s->marks_count; i++) {
		for (; issued < s->marks[i]; issued++) {
			rc = issue(layer, deadline_ns);
			if (rc)
				return rc;
			if (s->compute_ns)
				computed_ns += compute(layer, s->compute_ns, &now_ns);
			if (now_ns > deadline_ns)
				return -ETIMEDOUT;
		}
		marks[i] = (struct careful_mark){ layer->now_ns() - began_ns, computed_ns };
		if (marks[i].elapsed_ns + began_ns > deadline_ns)
			return -ETIMEDOUT;
	}
	if (!(s->flags & CAREFUL_SIGNATURE_GO_ON))
		rc = poll_until(layer, 0, deadline_ns);
	*out = (struct careful_burst){
		.began_ns = began_ns,
		.done_ns = layer->now_ns() - began_ns,
		.arrived_ns = layer->arrived_ns,
	};
	return rc;
}

int signature_run(struct signature_layer *layer, const struct careful_signature *s, void *answers,
		  uint32_t bytes)
{
	uint64_t until_ns = layer->now_ns() + (uint64_t)CAREFUL_SIGNATURE_MS * NS_PER_MS;
	uint32_t burst_bytes = signature_burst_bytes(s), count = 0;
	unsigned char *at = answers;

	do {
		struct careful_burst *out =
			(struct careful_burst *)(void *)(at + count * burst_bytes);
		int rc;

		if ((count + 1) * burst_bytes > bytes)
			return count ? (int)count : -EMSGSIZE;
		rc = burst(layer, s, out, (struct careful_mark *)(out + 1));
		if (rc)
			return rc;
	} while (++count < s->bursts && layer->now_ns() < until_ns);
	return (int)count;
}
