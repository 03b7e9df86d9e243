// SPDX-License-Identifier: BSD-2-Clause
/* Zero-copy: advice for drivers that refuse it, and drivers that accept it and pass no frame. */
#include <errno.h>
#include <linux/ethtool.h>
#include <string.h>

#include "check.h"
#include "device/compat.h"
#include "device/xsk/xsk.h"

static void expect_advice(const char *driver, int rc, const char *words)
{
	CHECK(strstr(xsk_zerocopy_advice(driver, rc), words));
}

/* The advice for virtio_net was once ethtool -L and -G, which change nothing there. */
static void test_advice__virtio_needs_settings_of_its_host(void)
{
	expect_advice("virtio_net", -EINVAL, "iommu_platform=on,disable-legacy=on");
	expect_advice("virtio_net", -EINVAL, "6.13");
	expect_advice("virtio_net", -ENOENT, "queue_reset=on");
	CHECK(!strstr(xsk_zerocopy_advice("virtio_net", -EINVAL), "ethtool"));
}

static void test_advice__other_drivers(void)
{
	expect_advice("ice", -EINVAL, "ethtool -L, ethtool -G");
	expect_advice("ice", -ENOENT, "dmesg");
	expect_advice("ice", -EOPNOTSUPP, "it has none");
	expect_advice("virtio_net", -EOPNOTSUPP, "before Linux 6.13");
	expect_advice("virtio_net", -ENOMEM, "UMEM could not be mapped");
}

static bool wakes_another(const char *driver, const char *release, uint32_t queues, uint32_t most,
			  uint32_t others)
{
	const struct ethtool_channels channels = {
		.combined_count = queues,
		.max_combined = most,
		.other_count = others,
	};

	return netdev_wakes_another(driver, release, &channels);
}

/* Each case was seen in an emulated machine: frames passed, or no buffer was used. */
static void test_wakes_another__igb(void)
{
	CHECK(wakes_another("igb", "6.18.15+deb13-amd64", 1, 8, 1));
	CHECK(!wakes_another("igb", "6.18.15+deb13-amd64", 1, 8, 0));
	CHECK(!wakes_another("igb", "7.3.4+deb13-amd64", 1, 8, 1));
}

/* By the driver's source: more than half of the queues are in use, or there is only one. */
static void test_wakes_another__queues_with_one_interrupt(void)
{
	CHECK(wakes_another("igb", "6.18.15", 4, 8, 1));
	CHECK(!wakes_another("igb", "6.18.15", 5, 8, 1));
	CHECK(!wakes_another("igb", "6.18.15", 1, 1, 1));
	CHECK(wakes_another("igc", "6.12.1", 1, 4, 1));
	CHECK(wakes_another("igc", "6.12.1", 1, 4, 0));
	CHECK(!wakes_another("igc", "6.12.1", 3, 4, 1));
	CHECK(!wakes_another("igc", "10.0.1", 1, 4, 1));
	CHECK(!wakes_another("ice", "6.18.15", 1, 8, 1));
}

int main(void)
{
	RUN(test_advice__virtio_needs_settings_of_its_host);
	RUN(test_advice__other_drivers);
	RUN(test_wakes_another__igb);
	RUN(test_wakes_another__queues_with_one_interrupt);
	return 0;
}
