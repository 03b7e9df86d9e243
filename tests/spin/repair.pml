/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The repair of lost frames in one direction (link/send/log.h, link/repair/reorder.c): numbers, the sender's
 * log, XDP's window and charge, frames that wait behind a missing one, requests and repairs. The
 * network loses, copies and delays any frame at any time, and the receive ring loses frames that
 * XDP has charged. Credits are never lost here; window.pml loses them. All frames cost one buffer.
 *
 * Numbers count from the last that the receiver has taken in order: 1 is due.
 *
 * W: window, 4 or 5. COPIES: frames under way besides the first copy of each number. RING: frames
 * that the ring lost and whose charge is not yet returned. The environment variable BROKEN names
 * the rule that is broken on purpose, so one program serves all cases.
 */
#ifndef W
#define W 4
#endif
#ifndef COPIES
#define COPIES 1
#endif
#ifndef RING
#define RING 1
#endif

#define NO_TAIL		1	/* no end suspects a lost tail */
#define WHOLE		2	/* a window that is wholly lost is not requested */
#define ONCE		3	/* a missing number is requested only once */
#define NO_FLOOR	4	/* XDP does not learn the taken numbers, like in a sealed session */
#define LAST_SEEN	5	/* XDP counts from the last number that it has admitted */
#define FAR		6	/* XDP's window begins one number too late */
#define HOLDERS		7	/* credits of waiting frames return at once */
#define CHARGED		8	/* the sender charges a repair */
#define BACK		9	/* the sender takes the cost of a lost frame back */
#define OVERTAKES	10	/* a frame behind a gap is handed on at once */
#define ANEW		11	/* a repair has a new number */
#define NEVER		12	/* an unsent number is answered */
#define COPY_KEPT	13	/* the charge of second copies is not returned */
#define RING_KEPT	14	/* the charge of frames that the ring lost is not returned */
#define SHORT_LOG	15	/* the log has an entry less than the window */
#define broken(rule)	(fault == rule)

#define N 7

byte fault;		/* the rule that is broken */
bool wants = true;	/* the sender has data */
byte sent;		/* sent numbers that are not taken: 1 to sent */
byte fly[N];		/* copies of each number under way */
bool waits[N];		/* received, waits for an earlier number */
bool wanted[N];		/* the sender must repeat it */
bool named[N];		/* the receiver has requested it */
byte known;		/* the last sent number that the receiver knows */
byte untaken;		/* taken numbers that XDP was not told */
byte old;		/* copies of taken numbers under way */
byte credits = W;
byte fill = W;		/* buffers in the fill ring */
byte used;		/* of frames that were handed on, and */
byte spare;		/* of second copies, not yet in the fill ring */
byte charge = W;	/* buffers that XDP may still fill */
byte lost;		/* that it charged for frames that the ring lost */
byte i;

#define needless(n)	(waits[n] || fly[n] == 0 -> fly[n] : fly[n] - 1)
#define copies \
	(old + needless(1) + needless(2) + needless(3) + needless(4) + needless(5))
#define missing(n)	(n <= known && !waits[n])
#define ask_for(n)	(missing(n) && !wanted[n] && !asked_before(n) && \
			 (fly[n] == 0 || copies < COPIES))
#define asked_before(n)	(broken(ONCE) && named[n])
#define may_ask		(!broken(WHOLE) || known < W || waits[2] || waits[3] || waits[4])
#define last_seen \
	(waits[5] -> 5 : (waits[4] -> 4 : (waits[3] -> 3 : (waits[2] -> 2 : 0))))
#define in_window \
	(i + untaken <= W && (!broken(LAST_SEEN) || i > last_seen) && \
	 (!broken(FAR) || i + untaken > 1))
#define may_repair	((!broken(ANEW) && !broken(CHARGED)) || credits > 0)

/* Hands on a number and those that wait behind it. */
inline hand_on()
{
	do
	:: waits[1] ->
		used++;
		credits = credits - broken(HOLDERS);
		untaken++;
		old = old + fly[1];
		sent--;
		known = (known > 0 -> known - 1 : 0);
		i = 1;
		do
		:: i < N - 1 ->
			fly[i] = fly[i + 1];
			waits[i] = waits[i + 1];
			wanted[i] = wanted[i + 1];
			named[i] = named[i + 1];
			i++
		:: else -> break
		od
	:: else -> break
	od
}

/* A copy of number i reaches the receiver. */
inline arrive()
{
	fly[i]--;
	if
	:: waits[i] && charge == 0
	:: waits[i] && charge > 0 -> charge--; fill--; spare++
	:: !waits[i] && charge == 0 ->
		assert(in_window);
		/* XDP refuses it, but not for ever. */
		assert((spare > 0 && !broken(COPY_KEPT)) || (lost > 0 && !broken(RING_KEPT)))
	:: !waits[i] && charge > 0 ->
		assert(in_window);
		assert(fill > 0);
		charge--;
		fill--;
		assert(i == 1 || !broken(OVERTAKES));
		waits[i] = true;
		wanted[i] = false;
		known = (known < i -> i : known);
		credits = credits + broken(HOLDERS);
		hand_on()
	fi
}

/* Number i is sent again. */
inline send_again()
{
	assert(sent - i < W - broken(SHORT_LOG));	/* the log still has it */
	assert(i <= sent);
	if
	:: broken(ANEW) ->
		assert(sent < W);
		credits--;
		sent++;
		fly[sent] = 1
	:: else -> fly[i]++
	fi;
	wanted[i] = false;
	credits = credits + broken(BACK) - broken(CHARGED)
}

#define take(n) \
	:: atomic { fly[n] > 0 -> i = n; arrive(); i = 0 } \
	:: atomic { fly[n] > 0 -> fly[n]-- } \
	:: atomic { fly[n] > 0 && copies < COPIES -> fly[n]++ } \
	:: atomic { fly[n] > 0 && charge > 0 && lost < RING -> fly[n]--; charge--; lost++ } \
	:: atomic { wanted[n] && may_repair && (fly[n] == 0 || copies < COPIES) -> \
		i = n; send_again(); i = 0 } \
	:: atomic { may_ask && ask_for(n) -> wanted[n] = true; named[n] = true }

active proctype both()
{
	c_code { now.fault = getenv("BROKEN") ? atoi(getenv("BROKEN")) : 0; }
	do
	:: atomic { wants && credits > 0 ->
		assert(sent < W);
		credits--;
		sent++;
		fly[sent] = 1 }
	:: wants -> wants = false
	take(1)
	take(2)
	take(3)
	take(4)
	take(5)
	:: atomic { old > 0 -> old--;
		if
		:: charge > 0 -> charge--; fill--; spare++
		:: true
		fi }
	:: atomic { used + spare > 0 ->
		fill = fill + used + spare;
		charge = charge + used + (broken(COPY_KEPT) -> 0 : spare);
		credits = credits + used;
		used = 0;
		spare = 0;
		untaken = (broken(NO_FLOOR) -> untaken : 0) }
	:: atomic { known < sent && !broken(NO_TAIL) -> known = sent }
	:: atomic { broken(NEVER) && known == sent && known < W && known > 0 ->
		wanted[known + 1] = true }
	:: atomic { lost > 0 && known > 0 && !broken(RING_KEPT) ->
		charge = charge + lost;
		lost = 0 }
	/* At the end all numbers have arrived and all credits are back. Any other end is a
	 * deadlock. */
	:: !wants && credits == W && sent == 0 && old + spare == 0 -> break
	od
}
