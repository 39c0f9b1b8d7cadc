-- Retention: what of finished threads has been kept long enough. A thread is finished when
-- it is done or cancelled and has no mail that is pending, claimed, dead or in doubt; no
-- other thread is ever touched. All of a batch is one transaction.

-- Finished threads after the given place, at most p_limit, ours until the transaction
-- ends: no claim (it takes the row) and no accept (it takes the lock). One that is being
-- worked on is passed over; it comes again when it is finished again.
CREATE OR REPLACE FUNCTION fleet.take_finished(
    p_status text, p_before timestamptz, p_created timestamptz, p_at timestamptz, p_thread text,
    p_limit integer, OUT seen integer, OUT ids text[], OUT at timestamptz, OUT thread text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_next text[];
BEGIN
    SELECT array_agg(t.thread_id), count(*), (array_agg(t.updated_at ORDER BY t.updated_at DESC,
        t.thread_id DESC))[1], (array_agg(t.thread_id ORDER BY t.updated_at DESC, t.thread_id DESC))[1]
    INTO v_next, seen, at, thread
    FROM (SELECT thread_id, updated_at FROM fleet.threads
          WHERE status = p_status AND updated_at < p_before AND created_at < p_created
            AND updated_at >= p_at AND (updated_at, thread_id) > (p_at, p_thread)
          ORDER BY updated_at, thread_id LIMIT p_limit) AS t;
    SELECT array_agg(t.thread_id) INTO v_next
    FROM (SELECT thread_id FROM fleet.threads
          WHERE thread_id = ANY (v_next) AND status = p_status AND updated_at < p_before
            AND NOT cancel_requested
          FOR UPDATE SKIP LOCKED) AS t
    WHERE pg_try_advisory_xact_lock(hashtextextended(t.thread_id, 1));
    -- A statement of its own: it sees what was accepted before the locks were ours.
    SELECT coalesce(array_agg(id), '{}') INTO ids FROM unnest(v_next) AS id
    WHERE NOT EXISTS (
        SELECT FROM fleet.messages m
        WHERE m.thread_id = id AND m.status IN ('pending', 'claimed', 'in_doubt', 'dead'));
END $$;

-- LangGraph's thread_ids of these threads, of every generation.
CREATE OR REPLACE FUNCTION fleet.checkpoint_threads(p_threads text[]) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(fleet.checkpoint_thread(t.thread_id, n)), '{}')
    FROM fleet.threads t CROSS JOIN LATERAL generate_series(1, t.generation) AS n
    WHERE t.thread_id = ANY (p_threads)
$$;

-- Whether its values are rebuilt from older checkpoints (LangGraph's DeltaChannel): by the
-- counters in the metadata, or by a snapshot, which is a `true` with a blob behind it.
CREATE OR REPLACE FUNCTION fleet.uses_delta(p_checkpoints text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM checkpoints c
        WHERE c.thread_id = p_checkpoints AND (
            c.metadata ? 'counters_since_delta_snapshot' OR c.metadata ? 'delta_writes_versioned'
            OR EXISTS (
                SELECT FROM jsonb_each(c.checkpoint->'channel_values') AS v
                JOIN checkpoint_blobs b ON b.thread_id = c.thread_id
                    AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = v.key
                    AND b.version = c.checkpoint->'channel_versions'->>v.key
                WHERE v.value = 'true')))
$$;

-- Removes all checkpoints of these LangGraph threads; rows by table.
CREATE OR REPLACE FUNCTION fleet.remove_checkpoints(p_checkpoints text[]) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c bigint;
    b bigint;
    w bigint;
BEGIN
    DELETE FROM checkpoint_writes WHERE thread_id = ANY (p_checkpoints);
    GET DIAGNOSTICS w = ROW_COUNT;
    DELETE FROM checkpoint_blobs WHERE thread_id = ANY (p_checkpoints);
    GET DIAGNOSTICS b = ROW_COUNT;
    DELETE FROM checkpoints WHERE thread_id = ANY (p_checkpoints);
    GET DIAGNOSTICS c = ROW_COUNT;
    RETURN jsonb_build_object('checkpoints', c, 'checkpoint_blobs', b, 'checkpoint_writes', w);
END $$;

-- Removes the checkpoints of one LangGraph thread that are older than p_before, but for
-- the latest of each namespace and its parent. A namespace of one call of a subgraph (its
-- name holds the task's id) goes as a whole: the call is over. Values that a checkpoint
-- which stays refers to, stay.
CREATE OR REPLACE FUNCTION fleet.remove_history(p_checkpoints text, p_before timestamptz) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n     record;
    v_old text[];
    v_rows bigint;
    c bigint := 0;
    b bigint := 0;
    w bigint := 0;
BEGIN
    FOR n IN
        SELECT DISTINCT ON (checkpoint_ns) checkpoint_ns AS ns, checkpoint_id AS head,
            parent_checkpoint_id AS parent, strpos(checkpoint_ns, ':') > 0 AS of_a_call
        FROM checkpoints WHERE thread_id = p_checkpoints
        ORDER BY checkpoint_ns, checkpoint_id DESC
    LOOP
        v_old := ARRAY(
            SELECT checkpoint_id FROM checkpoints
            WHERE thread_id = p_checkpoints AND checkpoint_ns = n.ns
              AND (checkpoint->>'ts')::timestamptz < p_before
              AND (n.of_a_call OR (checkpoint_id <> n.head
                   AND checkpoint_id IS DISTINCT FROM n.parent)));
        CONTINUE WHEN cardinality(v_old) = 0;
        DELETE FROM checkpoint_writes
        WHERE thread_id = p_checkpoints AND checkpoint_ns = n.ns AND checkpoint_id = ANY (v_old);
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        w := w + v_rows;
        DELETE FROM checkpoints
        WHERE thread_id = p_checkpoints AND checkpoint_ns = n.ns AND checkpoint_id = ANY (v_old);
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        c := c + v_rows;
        UPDATE checkpoints SET parent_checkpoint_id = NULL
        WHERE thread_id = p_checkpoints AND checkpoint_ns = n.ns
          AND parent_checkpoint_id = ANY (v_old);
        DELETE FROM checkpoint_blobs
        WHERE thread_id = p_checkpoints AND checkpoint_ns = n.ns AND (channel, version) IN (
            SELECT channel, version FROM checkpoint_blobs
            WHERE thread_id = p_checkpoints AND checkpoint_ns = n.ns
            EXCEPT
            SELECT v.key, v.value
            FROM checkpoints k CROSS JOIN LATERAL jsonb_each_text(k.checkpoint->'channel_versions') AS v
            WHERE k.thread_id = p_checkpoints AND k.checkpoint_ns = n.ns);
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        b := b + v_rows;
    END LOOP;
    RETURN jsonb_build_object('checkpoints', c, 'checkpoint_blobs', b, 'checkpoint_writes', w);
END $$;

-- The mail of finished threads, but for the latest start: it tells that the key was there,
-- and its payload's hash that it is the same start again. Its payload goes.
CREATE OR REPLACE FUNCTION fleet.remove_messages(p_threads text[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_rows  bigint;
    v_blank bigint;
BEGIN
    DELETE FROM fleet.messages m
    WHERE m.thread_id = ANY (p_threads) AND m.seq IS DISTINCT FROM (
        SELECT max(s.seq) FROM fleet.messages s
        WHERE s.thread_id = m.thread_id AND split_part(s.kind, '@', 1) = 'start');
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    UPDATE fleet.messages SET payload = 'null', error = NULL
    WHERE thread_id = ANY (p_threads) AND payload <> 'null';
    GET DIAGNOSTICS v_blank = ROW_COUNT;
    RETURN v_rows + v_blank;
END $$;

-- The next batch of finished threads, last changed before p_days ago: removes what p_what
-- names. 'history' leaves their latest checkpoints; '…_in_use' is what is old of threads that
-- were changed since. p_limit threads at most, beginning after (p_at, p_thread).
-- seen = 0: no more. removed: rows by table. delta: threads whose history must stay.
CREATE OR REPLACE FUNCTION fleet.prune_threads(
    p_what text, p_status text, p_days float8, p_at timestamptz, p_thread text, p_limit integer,
    OUT seen integer, OUT removed jsonb, OUT delta text[], OUT at timestamptz, OUT thread text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_before timestamptz := fleet.now() - p_days * interval '1 day';
    v_ids    text[];
    v_id     text;
    v_rows   bigint;
BEGIN
    IF p_what IN ('history_in_use', 'events_in_use') THEN
        -- Changed a moment ago, and old enough to have an old history.
        SELECT f.seen, f.ids, f.at, f.thread INTO seen, v_ids, at, thread
        FROM fleet.take_finished(p_status, fleet.now(), v_before, p_at, p_thread, p_limit) AS f;
    ELSE
        SELECT f.seen, f.ids, f.at, f.thread INTO seen, v_ids, at, thread
        FROM fleet.take_finished(p_status, v_before, 'infinity', p_at, p_thread, p_limit) AS f;
    END IF;
    removed := '{}';
    delta := '{}';
    CASE p_what
    WHEN 'messages' THEN
        removed := jsonb_build_object('messages', fleet.remove_messages(v_ids));
    WHEN 'effects' THEN
        DELETE FROM fleet.effects WHERE thread_id = ANY (v_ids);
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        removed := jsonb_build_object('effects', v_rows);
    WHEN 'questions' THEN
        DELETE FROM fleet.questions WHERE thread_id = ANY (v_ids);
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        removed := jsonb_build_object('questions', v_rows);
    WHEN 'events' THEN
        DELETE FROM fleet.events WHERE thread_id = ANY (v_ids);
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        removed := jsonb_build_object('events', v_rows);
    WHEN 'events_in_use' THEN
        DELETE FROM fleet.events e WHERE e.thread_id = ANY (v_ids) AND e.at < v_before;
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        removed := jsonb_build_object('events', v_rows);
    WHEN 'checkpoints' THEN
        removed := fleet.remove_checkpoints(fleet.checkpoint_threads(v_ids));
    WHEN 'history', 'history_in_use' THEN
        FOREACH v_id IN ARRAY fleet.checkpoint_threads(v_ids) LOOP
            IF fleet.uses_delta(v_id) THEN
                delta := delta || v_id;
            ELSE
                removed := fleet.add_counts(removed, fleet.remove_history(v_id, v_before));
            END IF;
        END LOOP;
    WHEN 'threads' THEN
        removed := fleet.remove_threads(v_ids);
    END CASE;
END $$;

-- Finished threads with all that is theirs: their keys are free as if never used.
CREATE OR REPLACE FUNCTION fleet.remove_threads(p_threads text[]) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    m bigint;
    e bigint;
    q bigint;
    n bigint;
    t bigint;
    removed jsonb := fleet.remove_checkpoints(fleet.checkpoint_threads(p_threads));
BEGIN
    DELETE FROM fleet.messages WHERE thread_id = ANY (p_threads);
    GET DIAGNOSTICS m = ROW_COUNT;
    DELETE FROM fleet.effects WHERE thread_id = ANY (p_threads);
    GET DIAGNOSTICS e = ROW_COUNT;
    DELETE FROM fleet.questions WHERE thread_id = ANY (p_threads);
    GET DIAGNOSTICS q = ROW_COUNT;
    DELETE FROM fleet.events WHERE thread_id = ANY (p_threads);
    GET DIAGNOSTICS n = ROW_COUNT;
    DELETE FROM fleet.presence WHERE thread_id = ANY (p_threads);
    DELETE FROM fleet.sessions WHERE thread_id = ANY (p_threads);
    DELETE FROM fleet.threads WHERE thread_id = ANY (p_threads);
    GET DIAGNOSTICS t = ROW_COUNT;
    RETURN removed || jsonb_build_object(
        'messages', m, 'effects', e, 'questions', q, 'events', n, 'threads', t);
END $$;

CREATE OR REPLACE FUNCTION fleet.add_counts(p_one jsonb, p_other jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_object_agg(key, n), '{}') FROM (
        SELECT key, sum(value::bigint) AS n FROM (
            SELECT * FROM jsonb_each_text(p_one) UNION ALL SELECT * FROM jsonb_each_text(p_other)
        ) AS counts GROUP BY key) AS summed
$$;

-- Business effects that ended before p_days ago, of threads that are finished or gone.
-- p_limit keys are looked at, in order, beginning after p_key.
CREATE OR REPLACE FUNCTION fleet.prune_keyed_effects(
    p_days float8, p_key text, p_limit integer,
    OUT seen integer, OUT removed bigint, OUT key text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_keys text[];
BEGIN
    SELECT array_agg(effect_key ORDER BY effect_key), count(*), max(effect_key)
    INTO v_keys, seen, key
    FROM (SELECT effect_key FROM fleet.keyed_effects WHERE effect_key > p_key
          ORDER BY effect_key LIMIT p_limit) AS k;
    DELETE FROM fleet.keyed_effects k
    WHERE k.effect_key = ANY (v_keys) AND k.state <> 'intent'
      AND k.finished_at < fleet.now() - p_days * interval '1 day'
      AND NOT EXISTS (
          SELECT FROM fleet.threads t
          WHERE t.thread_id = k.thread_id AND t.status NOT IN ('done', 'cancelled'))
      -- A failed one that names its renewal is how that is found.
      AND NOT EXISTS (
          SELECT FROM fleet.keyed_effects n
          WHERE n.effect_key = k.effect_key || '#' || (k.error->>'renewed_as'))
      AND pg_try_advisory_xact_lock(fleet.effect_lock(k.effect_key));
    GET DIAGNOSTICS removed = ROW_COUNT;
END $$;
