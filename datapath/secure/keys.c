// SPDX-License-Identifier: BSD-2-Clause
#include "secure/keys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <careful/wire.h>

#include "base/error.h"

enum { TEXT_BYTES = 1 << 16 }; /* the largest key file */

/* Checks that no other user may write the file, or read it if it is secret. */
static int check_file(int fd, const char *path, bool secret, struct careful_error *error)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return explain(error, -EINVAL, "%s: must be a regular file", path);
	if (secret ? st.st_mode & (S_IRWXG | S_IRWXO) : st.st_mode & (S_IWGRP | S_IWOTH))
		return explain(
			error, -EACCES,
			secret ? "%s: others may read this key: chmod 600 it; if it was read, "
				 "make a new key" :
				 "%s: others may write it: chmod 644 it",
			path);
	if (st.st_uid != geteuid() && st.st_uid)
		return explain(error, -EACCES, "%s: belongs to another user: chown root it", path);
	return 0;
}

static int read_text(const char *directory, const char *name, bool secret, char *text,
		     struct careful_error *error)
{
	char path[PATH_MAX];
	ssize_t n = -1;
	int fd, rc;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return explain(error, -errno, "%s: %s", path, strerror(errno));
	rc = check_file(fd, path, secret, error);
	if (!rc)
		n = read(fd, text, TEXT_BYTES);
	if (!rc && (n < 0 || n == TEXT_BYTES))
		rc = explain(error, n < 0 ? -errno : -EFBIG, "%s: unreadable or too large", path);
	close(fd);
	if (!rc)
		text[n] = 0;
	return rc;
}

/* Reads the key that `text` starts with. *end: the first byte after the key. */
static bool read_key(const char *text, const char **end, uint8_t *key)
{
	size_t bytes;

	return !sodium_base642bin(key, NOISE_KEY_BYTES, text, strcspn(text, " \t\r\n"), NULL,
				  &bytes, end, sodium_base64_VARIANT_ORIGINAL) &&
	       bytes == NOISE_KEY_BYTES;
}

static int read_secret(const char *directory, const char *name, char *text, uint8_t *key,
		       struct careful_error *error)
{
	const char *end;
	int rc = read_text(directory, name, true, text, error);

	if (rc)
		return rc;
	if (!read_key(text, &end, key) || end[strspn(end, " \t\r\n")])
		return explain(error, -EINVAL, "%s/%s: must be one key of 32 bytes in base64",
			       directory, name);
	return 0;
}

bool keys_read_address(const char *text, size_t bytes, union address *address)
{
	char copy[INET6_ADDRSTRLEN];

	if (bytes >= sizeof(copy))
		return false;
	memcpy(copy, text, bytes);
	copy[bytes] = 0;
	*address = (union address){ .sa.sa_family = AF_INET };
	if (inet_pton(AF_INET, copy, &address->in.sin_addr) == 1)
		return true;
	*address = (union address){ .sa.sa_family = AF_INET6 };
	return inet_pton(AF_INET6, copy, &address->in6.sin6_addr) == 1;
}

int keys_trust(struct keys *keys, const union address *address, const uint8_t *ours_private,
	       const uint8_t *theirs, const uint8_t *psk)
{
	struct keys_trusted *more = realloc(keys->trusted, (keys->count + 1) * sizeof(*more));
	crypto_auth_hmacsha256_state state;
	struct keys_trusted *key;
	int rc;

	if (!more)
		return -ENOMEM;
	keys->trusted = more;
	key = &more[keys->count];
	*key = (struct keys_trusted){ .address = *address };
	rc = noise_pair_init(&key->pair, ours_private, theirs, psk);
	if (rc)
		return rc;
	crypto_auth_hmacsha256_init(&state, key->pair.shared, sizeof(key->pair.shared));
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)"careful mac", 11);
	crypto_auth_hmacsha256_final(&state, key->mac_key);
	keys->count++;
	return 0;
}

static int read_line(struct keys *keys, const char *line, const uint8_t *ours, const uint8_t *psk)
{
	size_t bytes = strcspn(line, " \t");
	uint8_t theirs[NOISE_KEY_BYTES];
	union address address;
	const char *end;

	if (!keys_read_address(line, bytes, &address))
		return -EINVAL;
	line += bytes;
	line += strspn(line, " \t");
	if (!read_key(line, &end, theirs))
		return -EINVAL;
	return keys_trust(keys, &address, ours, theirs, psk);
}

static int read_trusted(struct keys *keys, const char *directory, char *text, const uint8_t *ours,
			const uint8_t *psk, struct careful_error *error)
{
	int rc = read_text(directory, "trusted", false, text, error);
	char *rest = text, *line;

	if (rc == -ENOENT) /* nobody is trusted yet */
		return 0;
	for (uint32_t n = 1; !rc && (line = strsep(&rest, "\n")); n++) {
		line += strspn(line, " \t\r");
		if (!*line || *line == '#')
			continue;
		rc = read_line(keys, line, ours, psk);
		if (rc)
			explain(error, rc, "%s/trusted, line %u: %s", directory, n,
				rc == -EINVAL ? "must be ADDRESS KEY [NAME]" : strerror(-rc));
	}
	return rc;
}

static const char *const file_names[] = { "private", "cluster", "trusted" };

static uint64_t hash_stat(const char *directory)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < sizeof(file_names) / sizeof(file_names[0]); i++) {
		char path[PATH_MAX];
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s", directory, file_names[i]);
		if (stat(path, &st))
			memset(&st, 0, sizeof(st));
		hash = careful_mix(hash, st.st_ino);
		hash = careful_mix(hash, (uint64_t)st.st_size << 32 | st.st_mode);
		hash = careful_mix(hash, (uint64_t)st.st_ctim.tv_sec);
		hash = careful_mix(hash, (uint64_t)st.st_ctim.tv_nsec);
	}
	return hash;
}

const char *keys_directory(const char *option, const char *usual)
{
	char path[PATH_MAX];

	if (option)
		return strcmp(option, "none") == 0 ? NULL : option;
	snprintf(path, sizeof(path), "%s/private", usual);
	return access(path, F_OK) && (errno == ENOENT || errno == ENOTDIR) ? NULL : usual;
}

bool keys_changed(const struct keys *keys, const char *directory)
{
	return hash_stat(directory) != keys->stat_hash;
}

int keys_load(struct keys *keys, const char *directory, struct careful_error *error)
{
	uint8_t ours[NOISE_KEY_BYTES], psk[NOISE_KEY_BYTES] = { 0 };
	char *text = malloc(TEXT_BYTES);
	struct keys fresh = { .stat_hash = hash_stat(directory) };
	int rc;

	if (!text || sodium_init() < 0) {
		free(text);
		return explain(error, -ENOMEM, "%s: out of memory", directory);
	}
	rc = read_secret(directory, "private", text, ours, error);
	if (!rc) {
		rc = read_secret(directory, "cluster", text, psk, error);
		if (rc == -ENOENT)
			rc = 0;
	}
	if (!rc)
		rc = read_trusted(&fresh, directory, text, ours, psk, error);
	sodium_memzero(text, TEXT_BYTES);
	sodium_memzero(ours, sizeof(ours));
	sodium_memzero(psk, sizeof(psk));
	free(text);
	if (rc) {
		keys_forget(&fresh);
		return rc;
	}
	keys_forget(keys);
	*keys = fresh;
	return 0;
}

int careful_key_public(const uint8_t *private_key, uint8_t *public_key)
{
	return crypto_scalarmult_curve25519_base(public_key, private_key) ? -EINVAL : 0;
}

int careful_key_check(const uint8_t *public_key)
{
	static const uint8_t any[NOISE_KEY_BYTES] = { 1 };
	struct noise_pair pair;

	return noise_pair_init(&pair, any, public_key, any);
}

void keys_forget(struct keys *keys)
{
	if (keys->trusted)
		sodium_memzero(keys->trusted, keys->count * sizeof(*keys->trusted));
	free(keys->trusted);
	*keys = (struct keys){ 0 };
}

const struct keys_trusted *keys_find(const struct keys *keys, const union address *address,
				     const struct keys_trusted *after)
{
	for (uint32_t i = after ? (uint32_t)(after - keys->trusted) + 1 : 0; i < keys->count; i++)
		if (address_same_host(&keys->trusted[i].address, address))
			return &keys->trusted[i];
	return NULL;
}
