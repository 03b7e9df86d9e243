/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The window rule with broadcast (P2 section 5.3), among three nodes. A broadcast takes each
 * receiver's credits as soon as it has them, and leaves when it has all. It returns the credits
 * owed to each receiver, or, with too many nodes, the least owed to any (LEAST). Credits that are
 * set aside act like a frame that its receiver keeps, which window.pml allows.
 *
 * W, T, COST, SPARE, DEADLOCK, CLAIM: as in window.pml. KEEP: nodes 1 and 2 may keep a frame.
 * CASTERS: nodes from 0 on that broadcast; the others send only to node 0. GREATEST: returns the
 *   greatest owed number to all (broken on purpose).
 */
#ifndef W
#define W 4
#endif
#ifndef T
#define T (W / 2 > 2 -> W / 2 : 2)
#endif
#ifndef COST
#define COST (W - T)
#endif
#ifndef SPARE
#define SPARE 1
#endif
#ifndef CASTERS
#define CASTERS 1
#endif

#define N 3
#define at(me, other)	((me) * N + (other))
#define a		((me + 1) % N)	/* the others */
#define b		((me + 2) % N)
#define casts		(me < CASTERS)

byte free[9] = W;	/* credits of the first node at the second */
byte owed[9];		/* freed buffers at the second, unknown to the first */
byte kept[9];
byte want[N];		/* cost of the next data frame; 0: no more data */
bool held[9];		/* the first has set the second's credits aside for its next broadcast */
bool sent[N];		/* data, in this round */
chan wire[9] = [W] of { bool, byte, byte };	/* from, to: data, cost, credits */

#define room(to)	(free[at(me, to)] >= want[me] + SPARE)
#define may_hold(to)	(want[me] && casts && !held[at(me, to)] && room(to))
#define may_cast	(held[at(me, a)] && held[at(me, b)])
#define may_send	(casts -> may_cast : want[me] && room(0))
#define due(to)		(owed[at(me, to)] >= T && free[at(me, to)] >= 1)
#define least		(owed[at(me, a)] < owed[at(me, b)] -> owed[at(me, a)] : owed[at(me, b)])
#define greatest	(owed[at(me, a)] > owed[at(me, b)] -> owed[at(me, a)] : owed[at(me, b)])
#ifdef GREATEST
#define given(to)	greatest
#elif defined(LEAST)
#define given(to)	least
#else
#define given(to)	owed[at(me, to)]
#endif
#define choose		if :: want[me] = 0 :: want[me] = COST fi

inline hold(to)
{
	if
	:: may_hold(to) -> free[at(me, to)] = free[at(me, to)] - want[me]; held[at(me, to)] = true
	:: else
	fi
}

inline put(to, data, cost, credits)
{
	if
	:: data && casts -> held[at(me, to)] = false
	:: else -> assert(free[at(me, to)] >= cost); free[at(me, to)] = free[at(me, to)] - cost
	fi;
	assert(owed[at(me, to)] >= credits);
	owed[at(me, to)] = owed[at(me, to)] - credits;
	wire[at(me, to)]!data, cost, credits
}

inline take(from)
{
	wire[at(from, me)]?data, cost, credits;
	free[at(me, from)] = free[at(me, from)] + credits;
	assert(free[at(me, from)] <= W);
	if
	:: owed[at(me, from)] = owed[at(me, from)] + cost
#ifdef KEEP
	:: data && me && kept[at(me, from)] == 0 -> kept[at(me, from)] = cost
#endif
	fi;
	data = false;
	cost = 0;
	credits = 0
}


inline update(to)
{
	if
	:: due(to) -> credits = owed[at(me, to)]; put(to, false, 1, credits)
	:: else
	fi
}

/* A round of careful_poll() like in window.pml: data, then updates. */
inline round()
{
	hold(a);
	hold(b);
	if
	:: may_send && casts ->
		credits = given(a);
		second = given(b);
		put(a, true, want[me], credits);
		put(b, true, want[me], second);
		choose;
		sent[me] = true
	:: may_send && !casts ->
		credits = owed[at(me, 0)];
		put(0, true, want[me], credits);
		choose;
		sent[me] = true
	:: else
	fi;
	update(a);
	update(b);
	credits = 0;
	second = 0
}

/* A process for each wire, so that each makes progress. */
proctype arrivals(byte me, from)
{
	bool data;
	byte cost, credits, second;

end:	do
	:: atomic { nempty(wire[at(from, me)]) -> take(from); round() }
	od
}

proctype node(byte me)
{
	byte credits, second;

	choose;
end:	do
	:: atomic { may_send || may_hold(a) || may_hold(b) || due(a) || due(b) -> round() }
	:: sent[me] ->
progress:	sent[me] = false
	od
}

#ifdef KEEP
/* An application releases its kept frame at some time. */
proctype application(byte me, from)
{
end:	do
	:: atomic {
		kept[at(me, from)] > 0 ->
		owed[at(me, from)] = owed[at(me, from)] + kept[at(me, from)];
		kept[at(me, from)] = 0
	   }
	od
}
#endif

init {
	atomic {
		run node(0);
		run node(1);
		run node(2);
		run arrivals(0, 1);
		run arrivals(0, 2);
		run arrivals(1, 0);
		run arrivals(2, 0)
#if CASTERS > 1
		; run arrivals(1, 2); run arrivals(2, 1)
#endif
#ifdef KEEP
		; run application(1, 0); run application(2, 0)
#endif
	}
}

#ifdef DEADLOCK
/* In a state without steps, no node has data left. */
active proctype watch()
{
end:	timeout -> assert(want[0] == 0 && want[1] == 0 && want[2] == 0)
}
#endif

#ifdef CLAIM
ltl heard { [] <> (want[0] == 0 || sent[0]) }
#endif
