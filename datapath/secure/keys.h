/* SPDX-License-Identifier: BSD-2-Clause */
/* The keys of this host and of the hosts that it trusts: files in a directory, which `carefulctl
 * key` writes.
 *
 *   private   our private key, base64; only its owner may read it
 *   trusted   lines of ADDRESS KEY [NAME]: a public key, base64. An address may have several keys:
 *             any of them is accepted, the first is tried first.
 *   cluster   a key that all hosts of a cluster share, base64, private; may be missing */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

#include "device/device.h"
#include "secure/noise.h"

/* @host: an IPv4 address is in the first four bytes
 * @mac_key: authenticates messages between the two hosts before any costly multiplication */
struct keys_trusted {
	uint16_t family;
	uint8_t host[16];
	uint8_t mac_key[NOISE_KEY_BYTES];
	struct noise_pair pair;
};

/* @seen: hash of what stat() reported for the files when they were read */
struct keys {
	struct keys_trusted *trusted;
	uint32_t count;
	uint64_t seen;
};

#define KEYS_DIRECTORY "/etc/careful/keys"

/* Returns the key directory, or NULL for none. `named` is the user's choice; "none" means NULL.
 * Without `named`: `usual`, if it has a private key or cannot be looked into. */
const char *keys_directory(const char *named, const char *usual);

/* Reports whether the files have changed since they were read. */
bool keys_changed(const struct keys *keys, const char *directory);

/* Reads all keys. *keys is unchanged if that fails. */
int keys_load(struct keys *keys, const char *directory, struct careful_error *error);
void keys_forget(struct keys *keys);

/* Adds one key. -EINVAL: `theirs` is no public key. */
int keys_trust(struct keys *keys, const union address *address, const uint8_t *ours_private,
	       const uint8_t *theirs, const uint8_t *psk);

/* Returns the next key of an address after `after` (NULL: the first), or NULL. Ignores the port. */
const struct keys_trusted *keys_find(const struct keys *keys, const union address *address,
				     const struct keys_trusted *after);
