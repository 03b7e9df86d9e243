/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The window rule (window.pml) with grants (link/send/reservation.h; P2 section 7): node 0 has large
 * messages to send. Node 1 grants buffers of a reserve beside its window: any number, since others
 * also use the reserve, and it may want them back at any time. All frames here cost one buffer.
 *
 * W, T: as in window.pml. N: the reserve. M: frames of a large message. KEEP: node 1's
 * application may keep a frame for a while.
 * ASKED: buffers that a sender asks for with this many frames left. Broken on purpose: REVOKE, an
 *   unused grant ends when no more is asked for. DEADLOCK: checks that there is none, and that
 *   every grant was paid back. CLAIM: checks that a node with data sends it.
 */
#ifndef W
#define W 4
#endif
#ifndef T
#define T (W / 2 > 2 -> W / 2 : 2)
#endif
#ifndef N
#define N 2
#endif
#ifndef M
#define M 6
#endif
#ifndef ASKED
#define ASKED (left[0] + 1 > W -> left[0] + 1 - W : 0)
#endif

byte free[2] = W;	/* credits */
byte owed[2];		/* buffers in the fill ring, or granted, that the other does not know */
byte kept;		/* buffers that node 1's application still uses */
byte left[2];		/* unsent frames of the message */
byte flying;		/* buffers that frames to node 1 will fill */
byte told;		/* credits on their way to node 0 */
byte asked;		/* by node 0's last frame */
byte granted;		/* credits of node 0 that no returned buffer backs */
bool sent[2];		/* data, in this round */
chan wire[2] = [W + N] of { bool, byte, byte };	/* to each node: data, credits, ask */

#define most(a, b)	((a) < (b) -> (a) : (b))
#define may_send	(left[me] && free[me] >= 2)
#define due		(owed[me] >= T && free[me] >= 1)
#define choose		if :: left[me] = 0 :: left[me] = 1 :: me == 0 -> left[me] = M fi
#define send(data) \
	wire[1 - me]!data, owed[me], (me == 0 -> ASKED : 0); \
	free[me] = free[me] - 1; \
	flying = flying + 1 - me; \
	told = (me == 1 -> told + owed[me] : told); \
	owed[me] = 0
/* Each buffer that node 0 fills or may fill belongs to its window or its grant. */
#define safe		(free[0] + flying + kept + owed[1] + told == W + granted && granted <= N)

/* Buffers of node 0's frames are free again. Those beyond its grant, or wanted by others, return to
 * the reserve. */
inline returned(n)
{
	if
	:: owed[1] = owed[1] + n -
		(granted > asked -> most(granted - asked, n) : 0);
	   granted = granted - (granted > asked -> most(granted - asked, n) : 0)
	:: granted > 0 && asked > 0 ->
	   owed[1] = owed[1] + n - most(granted, n);
	   granted = granted - most(granted, n)
	fi
}

inline grant()
{
	if
	:: true
	:: most(asked, N) > granted -> owed[1]++; granted++
	:: most(asked, N) > granted + 1 ->
	   owed[1] = owed[1] + most(asked, N) - granted;
	   granted = most(asked, N)
	fi
#ifdef REVOKE
	granted = (asked == 0 -> 0 : granted)
#endif
}

proctype node(byte me)
{
	bool data;
	byte credits, ask;

	choose;
end:	do
	:: atomic {
		if
		:: wire[me]?data, credits, ask ->
			free[me] = free[me] + credits;
			assert(free[me] <= W + N);
			if
			:: me == 0 -> owed[0]++; told = told - credits
			:: me == 1 ->
				flying--;
				asked = ask;
				if
				:: returned(1)
#ifdef KEEP
				:: data && kept == 0 -> kept = 1
#endif
				fi;
				grant()
			fi;
			data = false;
			credits = 0;
			ask = 0
		:: may_send || due
		fi;
		if
		:: may_send ->
			left[me]--;
			send(true);
			if
			:: left[me] == 0 -> choose
			:: left[me] > 0
			fi;
			sent[me] = true
		:: !may_send
		fi;
		if
		:: due -> send(false)
		:: !due
		fi;
		assert(safe)
	   }
	   if
	   :: sent[me] ->
progress:	sent[me] = false
	   :: !sent[me]
	   fi
	od
}

/* The application releases its kept frame at some time. */
proctype application()
{
end:	do
	:: atomic { kept > 0 -> kept = 0; returned(1) }
	od
}

init {
	atomic { run node(0); run node(1); run application() }
}

#ifdef DEADLOCK
/* In a state without steps, no node has data left, and the reserve is whole. */
active proctype watch()
{
end:	timeout -> assert(left[0] == 0 && left[1] == 0); assert(granted == 0)
}
#endif

#ifdef CLAIM
ltl heard { [] <> (left[0] == 0 || sent[0]) }
#endif
