/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of a session that only link/ calls; link.h has those for the layers above. */
#pragma once

#include "link/link_private.h"

/* epoch.c */
void epoch_begin(struct link_peer *peer, uint64_t cookie);
void epoch_opened(struct link_peer *peer);
void epoch_end(struct link_peer *peer);
bool epoch_drained(struct link_peer *peer);
bool epoch_quiet(struct link_peer *peer);
void link_bye(struct link_peer *peer);

/* session.c */
void link_renew(struct link_peer *peer);
void link_way_changed(struct link_peer *peer);
void link_lost(struct link_peer *peer, uint32_t frames);
void session_tick(struct link_peer *peer);

/* window_yield.c */
bool window_yield_ask(struct link *link, const struct link_host *host);
bool window_evict(struct link *link, const struct link_host *newcomer);
bool window_evict_silent(struct link *link, const struct link_host *newcomer, bool any_host);
bool window_yield(struct link_peer *peer, const struct careful_ctrl *sync);
void window_yield_tick(struct link_peer *peer);

/* sync_message.c */
void link_sync_ask(struct link_peer *peer, enum careful_sync question);

/* sync.c */
bool link_on_sync(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool link_sync_answer(struct link_peer *peer);
void link_sync_question_tick(struct link_peer *peer);
bool link_on_sync_ack(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool link_on_gone(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool link_on_refused(struct link_peer *peer);
bool link_awaits(const struct link_peer *peer);
bool link_sync_tick(struct link_peer *peer);

/* control_watch.c */
void control_watch_begin(struct link_peer *peer);
void control_watch_ask(struct link_peer *peer);
void control_watch_answer(struct link_peer *peer, const struct careful_ctrl *sync);
bool control_watch_on_answer(struct link_peer *peer, const struct careful_ctrl *ack);
void control_watch_heard(struct link_peer *peer);
void control_watch_tick(struct link_peer *peer);
bool control_watch_unheard(const struct link_peer *peer);

/* path.c */
void link_path_fit(struct link_peer *peer);
int link_path_again(struct link_peer *peer, bool *moved);
bool link_path_narrow(const struct link_peer *peer);
bool link_path_begin(struct link_peer *peer);
bool link_path_told(struct link_peer *peer);
enum link_path_state {
	LINK_PATH_KNOWN,
	LINK_PATH_PROBES, /* data waits for the search */
	LINK_PATH_RENEWS, /* frames must be smaller, in a new epoch */
};
enum link_path_state link_path_tick(struct link_peer *peer);
