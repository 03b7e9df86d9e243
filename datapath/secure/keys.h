/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The keys of this host and of those that it trusts: files in a directory, which `carefulctl key`
 * writes.
 *
 *   private   our private key, base64; only its owner may read it
 *   trusted   lines of ADDRESS KEY [NAME]: a public key, base64. An address may have several keys:
 *             any of them is believed, the first is asked for first.
 *   cluster   a key of all hosts of a cluster, base64, like `private`; may be missing
 */
#ifndef SECURE_KEYS_H
#define SECURE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

#include "device/device.h"
#include "secure/noise.h"

/*
 * @host:    IPv4 in its first four bytes
 * @mac_key: of messages between these two, so that no stranger makes us multiply
 */
struct keys_trusted {
	uint16_t family;
	uint8_t host[16];
	uint8_t mac_key[NOISE_KEY_BYTES];
	struct noise_pair pair;
};

/* @seen: of the files, when they were read: what stat() says of them, mixed */
struct keys {
	struct keys_trusted *trusted;
	uint32_t count;
	uint64_t seen;
};

#define KEYS_DIRECTORY "/etc/careful/keys"

/* The directory that counts where `named` was asked for: none (NULL) of "none"; where nothing is
 * named `usual`, if there is a private key, or if that cannot be seen. */
const char *keys_directory(const char *named, const char *usual);

/* Reports whether the files are others than those that were read. */
bool keys_changed(const struct keys *keys, const char *directory);

/* *keys is as it was where it fails. */
int keys_load(struct keys *keys, const char *directory, struct careful_error *error);
void keys_forget(struct keys *keys);

/* Adds one; -EINVAL: theirs is no public key. */
int keys_trust(struct keys *keys, const union address *address, const uint8_t *ours_private,
	       const uint8_t *theirs, const uint8_t *psk);

/* What is trusted at the address, whatever the port: the next after `after` (NULL: the first), or
 * NULL. */
const struct keys_trusted *keys_find(const struct keys *keys, const union address *address,
				     const struct keys_trusted *after);

#endif /* SECURE_KEYS_H */
