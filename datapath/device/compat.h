/* SPDX-License-Identifier: BSD-2-Clause */
/* All constants that the headers of Debian 12 (Linux 6.1) may lack. Only a try shows if the running
 * kernel supports them. */
#pragma once

#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <sys/mman.h>

#ifndef XDP_USE_SG /* 6.6: frames of several buffers */
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD /* 6.6 */
#define XDP_PKT_CONTD (1 << 0)
#endif
#ifndef XDP_MAX_TX_SKB_BUDGET /* 6.17: frames per sendto() in copy mode */
#define XDP_MAX_TX_SKB_BUDGET 9
#endif
#ifndef MADV_POPULATE_WRITE /* 5.14, but not in older C libraries */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE /* 6.1, likewise */
#define MADV_COLLAPSE 25
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif
#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef BPF_FS_MAGIC
#define BPF_FS_MAGIC 0xcafe4a11
#endif
#ifndef ENOTSUPP /* internal to the kernel, but some drivers return it */
#define ENOTSUPP 524
#endif
