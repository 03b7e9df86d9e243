/* SPDX-License-Identifier: BSD-2-Clause */
/* The XDP mode under an instance that is open, and peace to try one: what carefuld needs to
 * find out by measuring which is better. */
#ifndef SERVICE_MODE_H
#define SERVICE_MODE_H

#include <stdint.h>

#include <careful/careful.h>

/* From now on only this peer's sessions begin; others' wait. CAREFUL_ANY_PEER: everybody's do,
 * also if a change was under way. */
void mode_alone(struct careful *instance, uint32_t peer);

/*
 * Ends every epoch, lets the RX ring drain, has the device receive in another mode, and begins
 * new epochs. To be called each round until it does not return -EAGAIN; then 0, or -errno with
 * *error: the mode is as it was, unless the statistics say that no program is on the interface.
 * What is under way is lost as at any new epoch: let nothing be.
 */
int mode_change(struct careful *instance, uint32_t mode, struct careful_error *error);

/* How often the link lost its carrier since the instance was opened: drivers that start the NIC
 * anew for another mode, or the first, take it away. */
uint32_t mode_link_downs(struct careful *instance);
/* How often our qdisc was put back after somebody had taken it off. */
uint32_t mode_qdiscs(struct careful *instance);

/* What careful_info() says of who decided: enum careful_xdp_by. */
void mode_decided(struct careful *instance, uint32_t by);

#endif /* SERVICE_MODE_H */
