/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The window rule (P2 section 5.3) between two nodes, for properties that need fairness: no node
 * with data waits for ever, and updates do not answer each other for ever. tests/explore explores
 * the compiled code; this model has only the rule.
 *
 * W: window. T: buffers owed that make an update due. COST: most buffers of a frame.
 * SPARE: credits that data leaves. KEEP: applications may keep a data frame for a while;
 * KEEP_UPDATES: and updates, which link/ never hands on.
 * REPAIR: the network loses one frame per direction at a time, whose repair has its number. Later
 * frames wait in their buffers; their credits are cumulative and count at once, so they include the
 * lost frame's. Each broken on purpose: NO_TAIL: a lost tail is never requested. FORGETS: the
 * repair carries no credits, and those of later frames are not cumulative. TWICE: the sender takes
 * the cost of a lost frame back.
 * WITHHOLD: node 1 withholds this many buffers of the window, or none again (link/repair/congestion.c),
 *   and changes that CHANGES times. The rest is w, from which T is computed.
 * HALVES: node 1 may halve T, or restore it, this many times, at any time: link/ does so after a
 *   loss. COST is made from the whole T.
 * DEADLOCK: checks that there is none. CLAIM: checks that a node with data sends it.
 */
#ifndef W
#define W 4
#endif
#ifdef WITHHOLD
#define w	(W - withheld[me])
#define least	(W - WITHHOLD)
#define told	(owed[me] > withheld[me] -> owed[me] - withheld[me] : 0)
#else
#define w	W
#define least	W
#define told	owed[me]
#endif
#ifdef HALVES
#define parts	(halved[me] -> 4 : 2)
#else
#define parts	2
#endif
#ifndef T
#define T (w / parts > 2 -> w / parts : 2)
#endif
#ifndef COST
#define COST (least - (least / 2 > 2 -> least / 2 : 2))
#endif
#ifndef SPARE
#define SPARE 1
#endif

byte free[2] = W;	/* credits */
byte owed[2];		/* buffers in the fill ring that the other does not know */
#ifdef WITHHOLD
byte withheld[2];
byte changes[2] = CHANGES;	/* remaining changes */
#endif
#ifdef HALVES
bool halved[2];		/* T is half as large */
byte turns[2] = HALVES;	/* remaining changes of that */
#endif
byte kept[2];		/* buffers of a frame that the application still uses */
byte want[2];		/* cost of the next data frame; 0: no more data */
bool sent[2];		/* data, in this round */
chan wire[2] = [W] of { bool, byte, byte };	/* to each node: data, cost, credits */

#ifdef REPAIR
bool missing[2];	/* a frame to this node is lost; of it: */
bool lost_data[2];
byte lost_cost[2], lost_credits[2];
chan early[2] = [W] of { bool, byte };	/* frames behind it */
byte filled[2];		/* receive buffers of this node that hold frames */

inline lose()
{
	missing[me] = true;
	lost_data[me] = data;
	lost_cost[me] = cost;
	lost_credits[me] = credits;
#ifdef TWICE
	free[1 - me] = free[1 - me] + cost
#endif
}

/* A frame behind the lost one. */
inline arrive_early()
{
#ifdef FORGETS
	free[me] = free[me] + credits;
#else
	free[me] = free[me] + credits + lost_credits[me];
#endif
	lost_credits[me] = 0;
	early[me]!data, cost;
	filled[me] = filled[me] + cost;
	assert(filled[me] <= W)
}

/* The repair arrives, and the waiting frames are handed on behind it. */
inline repair()
{
#ifndef FORGETS
	free[me] = free[me] + lost_credits[me];
#endif
	assert(filled[me] + lost_cost[me] <= W);
	owed[me] = owed[me] + lost_cost[me];
	do
	:: early[me]?data, cost ->
		owed[me] = owed[me] + cost;
		filled[me] = filled[me] - cost
	:: empty(early[me]) -> break
	od;
	missing[me] = false;
	lost_data[me] = false;
	lost_cost[me] = 0;
	lost_credits[me] = 0
}

#ifdef NO_TAIL
#define asked_for	nempty(early[me])
#else
#define asked_for	true
#endif
#endif

#ifdef KEEP_UPDATES
#define keepable	true
#else
#define keepable	data
#endif
#define may_send	(want[me] && free[me] >= want[me] + SPARE)
#define due		(told >= T && free[me] >= 1)
#define choose		if :: want[me] = 0 :: want[me] = 1 :: want[me] = COST fi
#define send(data, cost)	wire[1 - me]!data, cost, told; free[me] = free[me] - cost; owed[me] = owed[me] - told

/*
 * Rounds of careful_poll(): receive, send data, then updates. A round is one step, since its
 * effects on the wires commute with the other node's.
 */
proctype node(byte me)
{
	bool data;
	byte cost, credits;

	choose;
end:	do
	:: atomic {
		if
#ifdef REPAIR
		:: !missing[me] && nempty(wire[me]) -> wire[me]?data, cost, credits; lose()
		:: missing[me] && nempty(wire[me]) -> wire[me]?data, cost, credits; arrive_early()
		:: missing[me] && asked_for -> repair()
		:: !missing[me] && nempty(wire[me]) ->
			wire[me]?data, cost, credits;
#else
		:: wire[me]?data, cost, credits ->
#endif
			free[me] = free[me] + credits;
#ifndef TWICE
			assert(free[me] <= W);
#endif
			if
			:: owed[me] = owed[me] + cost
#ifdef KEEP
			:: keepable && kept[me] == 0 -> kept[me] = cost
#endif
			fi;
		:: may_send || due /* nothing has arrived */
		fi;
		data = false;
		cost = 0;
		credits = 0;
		if
		:: may_send ->
			send(true, want[me]);
			choose;
			sent[me] = true
		:: !may_send
		fi;
		if
		:: due -> send(false, 1)
		:: !due
		fi
	   }
	   if
	   :: sent[me] ->
progress:	sent[me] = false
	   :: !sent[me]
	   fi
	od
}

/* An application releases its kept frame at some time. */
proctype application(byte me)
{
end:	do
	:: atomic { kept[me] > 0 -> owed[me] = owed[me] + kept[me]; kept[me] = 0 }
	od
}

#ifdef WITHHOLD
/* Congestion begins or ends. */
proctype network(byte me)
{
end:	do
	:: atomic { changes[me] > 0 && withheld[me] == 0 -> changes[me]--; withheld[me] = WITHHOLD }
	:: atomic { changes[me] > 0 && withheld[me] > 0 -> changes[me]--; withheld[me] = 0 }
	od
}
#endif

#ifdef HALVES
/* Losses halve T, and their end restores it. */
proctype losses(byte me)
{
end:	do
	:: atomic { turns[me] > 0 -> turns[me]--; halved[me] = !halved[me] }
	:: atomic { turns[me] > 0 -> turns[me] = 0 }
	od
}
#endif

init {
	atomic {
#ifdef HALVES
		run losses(1);
#endif
#ifdef WITHHOLD
		run network(1);
#endif
		run node(0); run node(1); run application(0); run application(1)
	}
}

#ifdef DEADLOCK
/* In a state without steps, no node has data left. */
active proctype watch()
{
end:	timeout -> assert(want[0] == 0 && want[1] == 0)
}
#endif

#ifdef CLAIM
ltl heard { [] <> (want[0] == 0 || sent[0]) }
#endif
