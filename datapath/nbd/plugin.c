/* SPDX-License-Identifier: BSD-2-Clause */
/* nbdkit's plugin `careful`: a file or block device of another host, for any NBD client.
 *
 *   nbdkit …/nbdkit-careful-plugin.so host=h2 path=image */
#define NBDKIT_API_VERSION 2
#include <careful/wire.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <nbdkit-plugin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nbd/file.h"
#include "nbd/queue.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static const char *host, *path, *instance, *port;
static char *instance_name;
static struct sockaddr_storage address;

/* A host allows one writable handle of a device. A flush closes the handle and opens another, so
 * our other connections must not open one in between. */
enum { CLOSING_S = 3 }; /* longest wait until an ended connection closes its handle */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t closed = PTHREAD_COND_INITIALIZER;
static bool device_is_open;

static int careful_config(const char *key, const char *value)
{
	const struct {
		const char *name, **value;
	} known[] = {
		{ "host", &host },
		{ "path", &path },
		{ "instance", &instance },
		{ "port", &port },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(key, known[i].name)) {
			*known[i].value = value;
			return 0;
		}
	nbdkit_error("%s: unknown parameter (host, path, instance, port)", key);
	return -1;
}

/* Returns the only instance of this machine, or NULL with an error reported. Ignores further queues
 * (NAME+1), locks, and files of dead instances. */
static char *only_instance(void)
{
	struct dirent *entry;
	char *found = NULL;
	int count = 0;
	DIR *dir = opendir(QUEUE_RUN_DIR);

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && !strchr(entry->d_name, '+') &&
		    queue_is_served(entry->d_name)) {
			free(found);
			found = strdup(entry->d_name);
			count++;
		}
	if (dir)
		closedir(dir);
	if (count == 1)
		return found;
	free(found);
	nbdkit_error(count ? "this host has several instances of careful: add instance=NAME" :
			     "careful is not up on this host: run carefulctl up");
	return NULL;
}

static int careful_config_complete(void)
{
	const char *named = instance ? instance : getenv("CAREFUL_INSTANCE");
	struct addrinfo hints = { .ai_socktype = SOCK_DGRAM }, *found;
	char default_port[8];
	int rc;

	if (!host || !path) {
		nbdkit_error("host=HOST and path=PATH are required");
		return -1;
	}
	snprintf(default_port, sizeof(default_port), "%d", CAREFUL_PORT_DEFAULT);
	rc = getaddrinfo(host, port ? port : default_port, &hints, &found);
	if (rc) {
		nbdkit_error("%s: %s", host, gai_strerror(rc));
		return -1;
	}
	memcpy(&address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	instance_name = named ? strdup(named) : only_instance();
	return instance_name ? 0 : -1;
}

static void careful_unload(void)
{
	free(instance_name);
}

static const char *error_text(int rc)
{
	if (rc == -ENOTCONN)
		return "careful is not up on this host, or not on the other";
	if (rc == -EBUSY)
		return "the device is in use: mounted, or written by another connection";
	if (rc == -ESTALE)
		return "another file has this name now";
	return strerror(-rc);
}

/* Turns -errno into nbdkit's return value, and reports it. */
static int result(int rc)
{
	if (!rc)
		return 0;
	nbdkit_error("%s:%s: %s", host, path, error_text(rc));
	nbdkit_set_error(file_nbd_error(rc));
	return -1;
}

static struct file *open_file(bool writable)
{
	struct sockaddr_storage target = address;
	struct file *file = NULL;
	char *sock = NULL;
	int rc;

	if (port) /* selects the host's queue */
		rc = asprintf(&sock, QUEUE_RUN_DIR "/%s/sock", instance_name) < 0 ? -ENOMEM : 0;
	else
		rc = queue_find(instance_name, &target, &sock);
	if (!rc)
		rc = file_open(sock, &target, path, writable, &file);
	free(sock);
	return result(rc) ? NULL : file;
}

static void *careful_open(int readonly)
{
	struct timespec until;
	struct file *file;
	int rc = 0;

	if (readonly)
		return open_file(false);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSING_S;
	pthread_mutex_lock(&opening);
	while (device_is_open && !rc)
		rc = pthread_cond_clockwait(&closed, &opening, CLOCK_MONOTONIC, &until);
	file = device_is_open ? NULL : open_file(true);
	if (device_is_open)
		result(-EBUSY);
	else
		device_is_open = file && file_is_exclusive(file);
	pthread_mutex_unlock(&opening);
	return file;
}

static void careful_close(void *handle)
{
	const bool was_exclusive = file_is_exclusive(handle);

	file_close(handle);
	if (!was_exclusive)
		return;
	pthread_mutex_lock(&opening);
	device_is_open = false;
	pthread_cond_signal(&closed);
	pthread_mutex_unlock(&opening);
}

static int64_t careful_get_size(void *handle)
{
	return (int64_t)file_bytes(handle);
}

static int careful_can_write(void *handle)
{
	return file_is_writable(handle);
}

/* A sync of a file covers all connections' writes. A device has only one connection. */
static int careful_can_multi_conn(void *handle)
{
	return !file_is_exclusive(handle);
}

static int careful_can_extents(void *handle)
{
	(void)handle;
	return 1;
}

static int careful_block_size(void *handle, uint32_t *minimum, uint32_t *preferred,
			      uint32_t *maximum)
{
	(void)handle;
	*minimum = 1;
	*preferred = 4096;
	*maximum = 64 << 20;
	return 0;
}

static int careful_pread(void *handle, void *buffer, uint32_t count, uint64_t offset,
			 uint32_t flags)
{
	(void)flags;
	return result(file_read(handle, buffer, count, offset));
}

static int careful_pwrite(void *handle, const void *buffer, uint32_t count, uint64_t offset,
			  uint32_t flags)
{
	(void)flags;
	return result(file_write(handle, buffer, count, offset));
}

static int careful_flush(void *handle, uint32_t flags)
{
	(void)flags;
	return result(file_is_writable(handle) ? file_sync(handle) : 0);
}

/* nbdkit writes the zeros itself after EOPNOTSUPP. */
static int careful_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	const bool may_trim = flags & NBDKIT_FLAG_MAY_TRIM;
	int rc = file_zero(handle, count, offset, may_trim);

	if (rc == -EOPNOTSUPP && may_trim)
		rc = file_zero(handle, count, offset, false);
	if (rc == -EOPNOTSUPP) {
		nbdkit_set_error(EOPNOTSUPP);
		return -1;
	}
	return result(rc);
}

/* Trim is a hint, so a file system without holes is no error. */
static int careful_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	int rc = file_zero(handle, count, offset, true);

	(void)flags;
	return result(rc == -EOPNOTSUPP ? 0 : rc);
}

static int add_extent(void *extents, uint64_t offset, uint64_t nbytes, bool is_data)
{
	uint32_t type = is_data ? 0 : NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO;

	return nbdkit_add_extent(extents, offset, nbytes, type) ? -errno : 0;
}

static int careful_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
			   struct nbdkit_extents *extents)
{
	int rc;

	(void)flags;
	rc = file_extents(handle, count, offset, add_extent, extents);
	if (rc == -ENOTSUP) /* treat all as data */
		rc = add_extent(extents, offset, count, true);
	return result(rc);
}

static struct nbdkit_plugin plugin = {
	.name = "careful",
	.longname = "careful: files of another host",
	.description = "Files and block devices of hosts that run careful.",
	.magic_config_key = "path",
	.config_help = "host=HOST      (required) an address, or a name that the system resolves\n"
		       "path=PATH      (required) below what the host exports\n"
		       "instance=NAME  which carefuld of this machine [CAREFUL_INSTANCE, or the "
		       "only one]\n"
		       "port=N         the host's [51966]",
	.unload = careful_unload,
	.config = careful_config,
	.config_complete = careful_config_complete,
	.open = careful_open,
	.close = careful_close,
	.get_size = careful_get_size,
	.can_write = careful_can_write,
	.can_multi_conn = careful_can_multi_conn,
	.can_extents = careful_can_extents,
	.block_size = careful_block_size,
	.pread = careful_pread,
	.pwrite = careful_pwrite,
	.flush = careful_flush,
	.trim = careful_trim,
	.zero = careful_zero,
	.extents = careful_extents,
};

NBDKIT_REGISTER_PLUGIN(plugin)
