/* SPDX-License-Identifier: BSD-2-Clause */
/* The value of `--seal`: which peers' frames are sealed, and how. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/wire.h>

#include "device/device.h"

enum { SEAL_RULES_MAX = CAREFUL_PEERS_MAX };

struct seal_rules {
	uint8_t all; /* enum careful_seal for every peer that is not named */
	uint32_t count;
	struct {
		uint8_t mode;
		union address address;
	} named[SEAL_RULES_MAX];
};

/* Reads MODE or MODE@ADDRESS, separated by commas; MODE is off, auth or encrypt. NULL: off. If an
 * address occurs twice, the first entry counts. */
int seal_rules_read(struct seal_rules *rules, const char *text, struct careful_error *error);
/* Reports whether the rules seal any peer's frames. */
bool seal_rules_any(const struct seal_rules *rules);
/* Returns the enum careful_seal for an address. */
uint8_t seal_rules_mode(const struct seal_rules *rules, const union address *address);
