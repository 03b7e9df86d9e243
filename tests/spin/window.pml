/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The window rule (P2 section 5.3) between two nodes, for what needs fairness: that
 * nobody who wants to send waits for ever, and that updates don't answer each other for
 * ever. The compiled code is explored in tests/explore; this is the rule alone.
 *
 * W: window. T: buffers owed that make an update due. COST: most buffers of a frame.
 * SPARE: credits that data leaves. KEEP: applications may keep a data frame for a while;
 * KEEP_UPDATES: and updates, which link/ never gives them.
 * REPAIR: the network loses a frame of each direction at a time, which comes later under its
 * number. Frames behind it wait in their buffers; their credits count at once, and they are
 * cumulative, so they contain those of the lost frame. Each broken on purpose: NO_TAIL: a frame
 * with none behind it is never asked for. FORGETS: the repair says no credits, and those of the
 * frames behind it are not cumulative. TWICE: the sender takes the cost of a lost frame back.
 * WITHHOLD: node 1 withholds so many buffers of the window, or none again (link/congestion.c); it
 * changes that CHANGES times. The rest is w, from which T is made.
 * DEADLOCK: check that there is none. CLAIM: check that who has data sends it.
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
#ifndef T
#define T (w / 2 > 2 -> w / 2 : 2)
#endif
#ifndef COST
#define COST (least - (least / 2 > 2 -> least / 2 : 2))
#endif
#ifndef SPARE
#define SPARE 1
#endif

byte free[2] = W;	/* credits */
byte owed[2];		/* buffers in the fill ring that the other was not told of */
#ifdef WITHHOLD
byte withheld[2];
byte changes[2] = CHANGES;	/* that are left */
#endif
byte kept[2];		/* buffers of a frame that the application still uses */
byte want[2];		/* cost of the next data frame; 0: there is none, nor will there be */
bool sent[2];		/* data, in this round */
chan wire[2] = [W] of { bool, byte, byte };	/* to each node: data, cost, credits */

#ifdef REPAIR
bool missing[2];	/* a frame to this node is lost; of it: */
bool lost_data[2];
byte lost_cost[2], lost_credits[2];
chan early[2] = [W] of { bool, byte };	/* what came behind it */
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

/* The lost frame comes after all, and those that wait are handed on behind it. */
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
 * Rounds of careful_poll(): take what came, send data, then updates. A round is one step:
 * what it does to the wires commutes with what the other does meanwhile.
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
		:: may_send || due /* nothing has come, or it is still under way */
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

/* An application releases what it keeps, some time. */
proctype application(byte me)
{
end:	do
	:: atomic { kept[me] > 0 -> owed[me] = owed[me] + kept[me]; kept[me] = 0 }
	od
}

#ifdef WITHHOLD
/* The network is congested, or no longer. */
proctype network(byte me)
{
end:	do
	:: atomic { changes[me] > 0 && withheld[me] == 0 -> changes[me]--; withheld[me] = WITHHOLD }
	:: atomic { changes[me] > 0 && withheld[me] > 0 -> changes[me]--; withheld[me] = 0 }
	od
}
#endif

init {
	atomic {
#ifdef WITHHOLD
		run network(1);
#endif
		run node(0); run node(1); run application(0); run application(1)
	}
}

#ifdef DEADLOCK
/* When nobody can do anything, nobody has anything left to send. */
active proctype watch()
{
end:	timeout -> assert(want[0] == 0 && want[1] == 0)
}
#endif

#ifdef CLAIM
ltl heard { [] <> (want[0] == 0 || sent[0]) }
#endif
