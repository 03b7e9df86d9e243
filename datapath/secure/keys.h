/* SPDX-License-Identifier: BSD-2-Clause */
/* The keys of this host and of the hosts that it trusts: files in a directory, which `carefulctl
 * key` writes. Keys are in base64.
 *
 *   private   our private key; only its owner may read the file
 *   trusted   lines of ADDRESS KEY [NAME], with a public key. An address may have several keys: we
 *             offer the first one, and accept any.
 *   cluster   a private key that all hosts of a cluster share; optional */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

#include "device/device.h"
#include "secure/noise.h"

struct keys_trusted {
	union address address;
	/* authenticates messages between the two hosts before any costly multiplication */
	uint8_t mac_key[NOISE_KEY_BYTES];
	struct noise_pair pair;
};

struct keys {
	struct keys_trusted *trusted;
	uint32_t count;
	uint64_t stat_hash; /* hash of what stat() reported for the files when they were read */
};

#define KEYS_DIRECTORY "/etc/careful/keys"

/* Returns the key directory, or NULL if keys are not used. `option` is the user's choice: a
 * directory, or "none". Without it, returns `usual` if that has a private key or cannot be read. */
const char *keys_directory(const char *option, const char *usual);

/* Reports whether the files have changed since they were read. */
bool keys_changed(const struct keys *keys, const char *directory);

/* Reads all keys. *keys is unchanged if that fails. */
int keys_load(struct keys *keys, const char *directory, struct careful_error *error);
void keys_forget(struct keys *keys);

/* Adds a key. -EINVAL: `theirs` is no public key. */
int keys_trust(struct keys *keys, const union address *address, const uint8_t *ours_private,
	       const uint8_t *theirs, const uint8_t *psk);

/* Returns the next key of an address after `after` (NULL: the first), or NULL. Ignores the port. */
const struct keys_trusted *keys_find(const struct keys *keys, const union address *address,
				     const struct keys_trusted *after);

/* Parses an IPv4 or IPv6 address; the port is 0. */
bool keys_read_address(const char *text, size_t bytes, union address *address);
