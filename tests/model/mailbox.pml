/* One queue of the fleet: accept, wake-up, claim, barrier, end, drain, sweep; with
 * processes that die, holders that stall and come back, and a broker that forgets.
 *
 * Each step between two labels is what one SQL statement sees or does at once; a
 * transaction's rows become visible at its commit, its session locks at once. Whatever
 * the code leaves to chance (when a process dies, whether a task has turns left) is a
 * choice here, and spin tries all of them. tests/model/test_model.py names the properties.
 *
 * Left out, on purpose: effects, questions, cancel, pause, priorities, delays. A thread has
 * LIMIT + 1 wake-ups at most: more of the same say nothing new.
 */

#ifndef THREADS
#define THREADS 1
#endif
#ifndef MAIL                /* messages in all; message m is of thread m % THREADS */
#define MAIL 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef LIMIT               /* wake-ups in the queue beyond which none is published */
#define LIMIT 1
#endif
#ifndef RELEASES            /* ends that leave the message pending: drained, retried */
#define RELEASES 1
#endif
#ifndef CRASHES             /* processes killed: locks and open transactions go */
#define CRASHES 0
#endif
#ifndef STALLS              /* holders that stop until their session is terminated, then go on */
#define STALLS 0
#endif
#ifndef LOSSES              /* wake-ups that the broker does not take, or forgets */
#define LOSSES 0
#endif

#define NOBODY 255
#define thread(m) ((m) % THREADS)

mtype = { absent, pending, claimed, done };

/* Postgres, as committed */
mtype mail[MAIL] = absent;      /* fleet.messages.status; m is its seq too */
byte  epoch[THREADS];           /* fleet.threads.epoch */
bool  running[THREADS];         /* fleet.threads.status = 'running' */
byte  epochs;                   /* the sequence fleet.epochs */
/* Postgres' locks: who holds them; 0 is nobody, else a slot's number from 1 */
byte  lock[THREADS];            /* fleet.thread_lock, advisory, of the session */
byte  row[THREADS];             /* the thread's row, until the transaction ends */
/* The broker's list */
byte  wakes[THREADS];
byte  queued;
/* What has gone wrong so far, and who stands still */
byte  crashes, stalls, losses, releases;
bool  stalled[SLOTS + 1];
/* Nobody's: what the properties speak of */
byte  written[THREADS];         /* the newest epoch that has written */
byte  ended;                    /* messages that are done */

inline wake(w) {
    if
    :: wakes[w] <= LIMIT -> wakes[w]++; queued++
    :: else
    fi
}

/* The first open message, as this transaction sees it: `but` is one that it has ended. */
inline head(th, but, found) {
    found = NOBODY; i = 0;
    do
    :: i == MAIL || found != NOBODY -> break
    :: else ->
        if
        :: thread(i) == th && i != but && (mail[i] == pending || mail[i] == claimed) -> found = i
        :: else
        fi;
        i++
    od;
    i = 0
}

/* producers/client.py, infra/sql/functions/accept.sql: commit first, then publish. */
proctype producer(byte t) {
    byte m = t;
    do
    :: m < MAIL ->
        mail[m] = pending;
        atomic {
            if
            :: queued < LIMIT -> wake(t)
            :: queued >= LIMIT                          /* the queue holds enough of them */
            :: losses < LOSSES -> losses++              /* no broker, or the producer is gone */
            fi
        };
        m = m + THREADS
    :: else -> break
    od
}

/* The new claim of fleet.claim_row: its rows, at the transaction's commit. */
inline begin(th, which) {
    epochs++;
    assert(mail[which] != done);                        /* a message counts once */
    epoch[th] = epochs; running[th] = true; mail[which] = claimed
}

/* fleet.claim: the named thread, in a transaction of its own. Waits for the row only. */
inline claim_by_name() {
    atomic {
        if
        :: lock[t] == 0 -> lock[t] = me; got = true
        :: else -> got = false
        fi
    };
    if
    :: got ->
        may_die();
#ifdef NO_ROW_LOCK
        atomic { head(t, NOBODY, h) };                  /* seeded: looks before it has the row */
        atomic { row[t] == 0 -> skip;
#else
        atomic { row[t] == 0 -> head(t, NOBODY, h);
#endif
            if
            :: h != NOBODY -> begin(t, h); m = h; e = epochs
            :: else -> lock[t] = 0; m = NOBODY
            fi;
            h = 0
        }
    :: else -> m = NOBODY
    fi;
    got = false
}

/* fleet.claim_next and claim_free: due mail of the queue; a row that is locked is skipped.
 * Leaves what it has found in nt and nm, and that row locked until the commit. */
inline claim_next(own) {
    u = 0;
    do
    :: u == THREADS || nm != NOBODY -> break
    :: else ->
        atomic {
            head(u, own, h);
            if
            :: h != NOBODY && mail[h] == pending && lock[u] == 0 -> lock[u] = me; got = true
            :: h != NOBODY && m == h && lock[u] == 0 -> lock[u] = me; got = true
            :: else -> got = false
            fi;
            h = 0
        };
        if
        :: got -> atomic {
            head(u, own, h);
            if
            :: h != NOBODY && (row[u] == 0 || row[u] == me) -> row[u] = me; nt = u; nm = h
            :: else -> lock[u] = 0
            fi;
            h = 0; got = false }
        :: else
        fi;
        u++
    od;
    u = 0
}

inline commit_next() {
    if
    :: nm != NOBODY -> begin(nt, nm); row[nt] = 0; t = nt; m = nm; e = epochs
    :: else -> m = NOBODY
    fi;
    nt = 0; nm = NOBODY
}

inline may_die() {
    if
    :: crashes < CRASHES -> crashes++; goto dead
    :: true
    fi
}

/* A stopped process, a hung node: goes on when its session is gone (sweeper: stuck). The
 * model then gives it a session that works, so nothing rests on the client's good will. */
inline may_stall() {
    if
    :: stalls < STALLS -> stalls++; stalled[me] = true; !stalled[me]
    :: true
    fi
}

inline let_go() {
    i = 0;
    do
    :: i < THREADS ->
        if :: lock[i] == me -> lock[i] = 0 :: else fi;
        if :: row[i] == me -> row[i] = 0 :: else fi;
        i++
    :: else -> break
    od;
    i = 0
}

#define ours (epoch[t] == e && running[t])

/* workers/drain.py over workers/turn.py: one task after the other, each from a wake-up. */
proctype slot(byte me) {
    byte t, m = NOBODY, e;                      /* the claim: thread, message, epoch */
    byte nt, nm = NOBODY;                       /* the next one, not committed yet */
    byte own = NOBODY, h, u, i;
    bool got, last;

end_idle:
    atomic {
        if
        :: wakes[0] > 0 -> t = 0
#if THREADS > 1
        :: wakes[1] > 0 -> t = 1
#endif
        fi;
        wakes[t]--; queued--
    };
    claim_by_name();
    if
    :: m == NOBODY -> claim_next(NOBODY); atomic { commit_next() }
    :: else
    fi;
    if
    :: m == NOBODY -> goto rest
    :: else
    fi;

turn:
    may_die();
    may_stall();
    /* fleet.barrier, infra/sql/functions/barrier.sql: the fence, then the rows. */
    atomic { row[t] == 0 ->
        if
        :: ours -> assert(e >= written[t]); written[t] = e          /* one writer */
#ifdef NO_FENCE
        :: else -> assert(e >= written[t]); written[t] = e          /* seeded: writes anyway */
#else
        :: else -> goto lost
#endif
        fi
    };
    may_die();
    may_stall();

    /* fleet.finish, infra/sql/functions/finish.sql: fence and row, unlock, look, claim. */
    atomic { row[t] == 0 ->
        if
        :: ours -> row[t] = me
        :: else -> goto lost
        fi;
        if
        :: own = m
        :: releases < RELEASES -> releases++
        fi
    };
    atomic { if :: lock[t] == me -> lock[t] = 0 :: else fi };       /* pg_advisory_unlock_all */
    may_die();
#ifndef NO_SECOND_LOOK
    if
    :: true ->                                  /* p_next: the task goes on */
        atomic { head(t, own, h); got = (h != NOBODY && lock[t] == 0);
            if :: got -> lock[t] = me; nt = t; nm = h :: else fi; h = 0; got = false };
        if
        :: nm == NOBODY -> claim_next(own)
        :: else
        fi
    :: last = true                              /* p_next is null: its turns are used up */
    fi;
#endif
    may_die();
    atomic {                                    /* COMMIT */
        assert(e >= written[t]); written[t] = e;
        assert(mail[m] == claimed);
        if
        :: own == m -> mail[m] = done; ended++
        :: else -> mail[m] = pending
        fi;
        own = NOBODY; running[t] = false; row[t] = 0;
        commit_next()
    };
    if
    :: m != NOBODY -> last = false; goto turn
    :: else
    fi;
    may_die();

#ifndef NO_SECOND_LOOK
    /* drain._claim_next, or drain._hand_over: after the last commit, once more. */
    if
#ifdef NO_LAST_LOOK
    :: !last
#else
    :: !last -> claim_next(NOBODY); atomic { commit_next() };
        if
        :: m != NOBODY -> goto turn
        :: else
        fi
#endif
    :: atomic {
        u = 0;
        do
        :: u < THREADS ->
            head(u, NOBODY, h);
            if
            :: h != NOBODY && mail[h] == pending -> wake(u); break
            :: else
            fi;
            u++
        :: else -> break
        od;
        u = 0; h = 0 }
    fi;
#endif
    goto rest;

lost:   /* ClaimLost: slot.disconnect(), and the task goes on with another session */
    atomic { let_go(); m = NOBODY };
    claim_next(NOBODY);
    atomic { commit_next() };
    if
    :: m != NOBODY -> goto turn
    :: else -> goto rest
    fi;

dead:   /* Postgres notices; Celery's parent starts another process. The wake-up is gone. */
    atomic { let_go(); m = NOBODY; nm = NOBODY; nt = 0; own = NOBODY; got = false };

rest:
    atomic { t = 0; e = 0; last = false; goto end_idle }
}

/* workers/sweeper.py, infra/sql/sweep.sql: orphans, overdue, stuck. One for each thread: the
 * leader looks at all of them in each of its ticks. */
proctype sweeper(byte t) {
    byte s, h, i;
end:
    do
#ifndef NO_ORPHANS
    :: atomic { running[t] && lock[t] == 0 && wakes[t] == 0 -> wake(t) }
#endif
    :: atomic { !running[t] && queued < LIMIT ->
        head(t, NOBODY, h);
        if
        :: h != NOBODY && mail[h] == pending -> wake(t)
        :: else
        fi;
        h = 0 }
    :: atomic { running[t] && lock[t] != 0 && stalled[lock[t]] ->
        s = lock[t]; lock[t] = 0; stalled[s] = false; s = 0 }
    od
}

/* FLUSHALL, at any moment. */
proctype saboteur() {
end:
    do
    :: atomic { losses < LOSSES && queued > 0 -> losses++;
        wakes[0] = 0;
#if THREADS > 1
        wakes[1] = 0;
#endif
        queued = 0 }
    od
}

init {
    byte n;
    atomic {
        n = 0;
        do :: n < THREADS -> run producer(n); n++ :: else -> break od;
        n = 1;
        do :: n <= SLOTS -> run slot(n); n++ :: else -> break od;
        n = 0;
#ifndef NO_SWEEPER
        do :: n < THREADS -> run sweeper(n); n++ :: else -> break od;
        n = 0;
        run saboteur()
#endif
    };
#ifdef NO_SWEEPER
    /* No lost wake-up: nobody has anything to do, so nothing may be left. */
    timeout -> assert(ended == MAIL)
#endif
}

/* Accepted is eventually done; a message that is done stays so, see begin(). */
#ifdef LIVENESS
ltl kept { <> (ended == MAIL) }
#endif
