// SPDX-License-Identifier: BSD-2-Clause
/* What to change where a driver refuses zero-copy: of each driver what it means by an errno. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "device/compat.h"
#include "device/xsk.h"

static void says(const char *driver, int rc, const char *words)
{
	CHECK(strstr(xsk_zerocopy_advice(driver, rc), words));
}

/* It said "ethtool -L, ethtool -G" of virtio_net, where neither changes anything. */
static void test_advice__virtio_needs_something_of_its_host(void)
{
	says("virtio_net", -EINVAL, "iommu_platform=on,disable-legacy=on");
	says("virtio_net", -EINVAL, "6.13");
	says("virtio_net", -ENOENT, "queue_reset=on");
	CHECK(!strstr(xsk_zerocopy_advice("virtio_net", -EINVAL), "ethtool"));
}

static void test_advice__others_as_they_agree(void)
{
	says("ice", -EINVAL, "ethtool -L, ethtool -G");
	says("ice", -ENOENT, "dmesg");
	says("ice", -EOPNOTSUPP, "it has none");
	says("virtio_net", -EOPNOTSUPP, "it has none");
	says("virtio_net", -ENOMEM, "UMEM could not be mapped");
}

int main(void)
{
	RUN(test_advice__virtio_needs_something_of_its_host);
	RUN(test_advice__others_as_they_agree);
	return 0;
}
