-- What `fleetctl query` reads: friendly names over what the writer keeps. Schemas: state = state.db,
-- log = events.db. Functions that asking.py adds: now_s(), and task_state(rid, state, reason, idx) for a
-- task whose newest attempt ended without success: it reads the status once an object, which can be
-- long and which a GROUP BY would otherwise carry along for every row.
-- `index` is a word of SQL, so the column is idx. Times are RFC 3339 texts in UTC; usd is NULL where
-- no price is known, which is not free. A live attempt counts up to now.
-- Objects that were deleted stay in all views until retention takes them; deleted_at is NULL for
-- those that are there. A name means the newest object that has it: an older one is shown as
-- `NAME (deleted TIME)`, so that what is asked of a name never mixes two objects.

-- name: owned_runs
-- Every run beside its object, there or gone.
SELECT runs.run_id, runs.rid, runs.idx, runs.attempt, runs.state, runs.provider, runs.exit_code,
    runs.created_at_s, runs.started_at_s, runs.ended_at_s, runs.name AS run, runs.reason,
    runs.message, runs.hint, runs.usd_per_s, runs.params, stood_for.word AS content,
    coalesce(resources.kind, gone.kind) AS kind, coalesce(resources.name, gone.shown) AS name,
    coalesce(resources.namespace, gone.namespace) AS namespace,
    coalesce(resources.uid, gone.uid) AS uid,
    strftime('%Y-%m-%dT%H:%M:%SZ', gone.gone_at_s, 'unixepoch') AS deleted_at
FROM state.runs LEFT JOIN state.resources USING (rid) LEFT JOIN state.gone USING (rid)
    LEFT JOIN state.words AS stood_for ON stood_for.word_id = runs.content;

-- name: objects
-- Every object: how it stands, and what its ended runs cost.
SELECT kind, name, lower(kind) || '/' || name
        || CASE namespace WHEN 'default' THEN '' ELSE ' -n ' || namespace END AS object,
    CASE WHEN gone_at_s IS NOT NULL THEN 'Deleted' WHEN deleted_at_s IS NOT NULL THEN 'Deleting'
        ELSE coalesce(json_extract(nullif(status, ''), '$.phase'), 'Pending') END AS phase,
    json_extract(nullif(status, ''), '$.reason') AS reason,
    json_extract(nullif(status, ''), '$.total') AS total,
    -- As everywhere: where nothing runs, what only tries to start is not at work.
    json_extract(nullif(status, ''), '$.active')
        - CASE json_extract(nullif(status, ''), '$.phase') WHEN 'Pending'
            THEN coalesce(json_extract(nullif(status, ''), '$.starting'), 0) ELSE 0 END AS active,
    json_extract(nullif(status, ''), '$.succeeded') AS succeeded,
    json_extract(nullif(status, ''), '$.failed') AS failed,
    json_extract(nullif(status, ''), '$.cached') AS cached,
    json_extract(nullif(status, ''), '$.outdated') AS outdated,
    json_extract(nullif(status, ''), '$.cost.actual') AS usd,
    json_extract(nullif(status, ''), '$.cost.estimated') AS estimated_usd,
    json_extract(nullif(status, ''), '$.budget.left') AS budget_left_usd,
    json_extract(nullif(status, ''), '$.usage.gpuPercent') AS gpu_percent,
    labels,
    -- The user of a team's server who applied it last; NULL for the server's own, and of what is gone.
    json_extract(annotations, '$."fleetctl.dev/applied-by"') AS applied_by,
    strftime('%Y-%m-%dT%H:%M:%SZ', created_at_s, 'unixepoch') AS created_at, uid, namespace,
    strftime('%Y-%m-%dT%H:%M:%SZ', gone_at_s, 'unixepoch') AS deleted_at
FROM (
    SELECT kind, name, namespace, status, labels, annotations, uid, created_at_s, deleted_at_s,
        NULL AS gone_at_s
    FROM state.resources
    UNION ALL
    SELECT kind, shown, namespace, status, labels, NULL, uid, created_at_s, gone_at_s, gone_at_s
    FROM state.gone
);

-- name: attempts
-- Every run: what it was given, where it ran, how it ended, what it cost. start_s is how long it
-- took to start.
SELECT kind, name, lower(kind) || '/' || name
        || CASE namespace WHEN 'default' THEN '' ELSE ' -n ' || namespace END AS object,
    CASE kind WHEN 'BatchJob' THEN name END AS job, CASE kind WHEN 'Sweep' THEN name END AS sweep,
    CASE kind WHEN 'TrainingRun' THEN name END AS training_run,
    idx, attempt,
    CASE WHEN reason = 'Cached' THEN 'Cached' ELSE CASE state WHEN 0 THEN 'Starting'
        WHEN 1 THEN 'Running' WHEN 2 THEN 'Stopping' WHEN 3 THEN 'Succeeded' WHEN 6 THEN CASE reason
        WHEN 'EarlyTerminated' THEN 'Stopped' ELSE 'Cancelled' END
        WHEN 7 THEN 'Refused' ELSE 'Failed' END END AS state,
    reason, exit_code, provider.word AS provider, params,
    strftime('%Y-%m-%dT%H:%M:%SZ', started_at_s, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', ended_at_s, 'unixepoch') AS ended_at,
    started_at_s - created_at_s AS start_s,
    max(0.0, coalesce(ended_at_s, now_s()) - started_at_s) AS duration_s,
    CASE WHEN started_at_s IS NULL THEN 0.0
        ELSE usd_per_s * max(0.0, coalesce(ended_at_s, now_s()) - started_at_s)
        END AS usd,
    usd_per_s * 3600 AS usd_per_h,
    run, message, hint, uid, namespace, deleted_at
FROM temp.owned_runs JOIN state.words AS provider ON provider.word_id = owned_runs.provider;

-- name: tasks
-- Every task that has run, by its newest attempt; attempts and usd are of all its attempts.
SELECT kind, name, lower(kind) || '/' || name
        || CASE namespace WHEN 'default' THEN '' ELSE ' -n ' || namespace END AS object,
    CASE kind WHEN 'BatchJob' THEN name END AS job, CASE kind WHEN 'Sweep' THEN name END AS sweep,
    CASE kind WHEN 'TrainingRun' THEN name END AS training_run,
    idx,
    (SELECT count(*) FROM state.runs AS every WHERE every.rid = newest.rid
        AND every.idx = newest.idx) AS attempts,
    CASE state WHEN 0 THEN 'Starting' WHEN 1 THEN 'Running' WHEN 2 THEN 'Stopping'
        WHEN 3 THEN CASE reason WHEN 'Cached' THEN 'Cached' ELSE 'Succeeded' END
        ELSE task_state(rid, state, reason, idx)
        END AS state,
    reason, exit_code, provider.word AS provider, params,
    strftime('%Y-%m-%dT%H:%M:%SZ', started_at_s, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', ended_at_s, 'unixepoch') AS ended_at,
    max(0.0, coalesce(ended_at_s, now_s()) - started_at_s) AS duration_s,
    (SELECT CASE WHEN count(*) = sum(every.usd_per_s IS NOT NULL OR every.started_at_s IS NULL)
        THEN sum(CASE WHEN every.started_at_s IS NULL THEN 0.0
            ELSE every.usd_per_s
                * max(0.0, coalesce(every.ended_at_s, now_s()) - every.started_at_s) END) END
        FROM state.runs AS every WHERE every.rid = newest.rid AND every.idx = newest.idx) AS usd,
    result, content,
    CASE WHEN state = 3 THEN coalesce(content <> desired_content(rid, idx), 0) END AS outdated,
    run, message, hint, uid, namespace, deleted_at
FROM temp.owned_runs AS newest
    JOIN state.words AS provider ON provider.word_id = newest.provider
    LEFT JOIN state.results USING (run_id)
WHERE NOT EXISTS (SELECT 1 FROM state.runs AS later
    WHERE later.rid = newest.rid AND later.idx = newest.idx AND later.attempt > newest.attempt);

-- name: results
-- What tasks submitted.
SELECT kind, name, object, job, sweep, training_run, idx, params, result, content, outdated,
    provider, usd, ended_at, namespace, deleted_at
FROM temp.tasks WHERE result IS NOT NULL;

-- name: metrics
-- What runs reported with `report(...)`.
SELECT kind, owned_runs.name AS name, lower(kind) || '/' || owned_runs.name
        || CASE namespace WHEN 'default' THEN '' ELSE ' -n ' || namespace END AS object,
    CASE kind WHEN 'BatchJob' THEN owned_runs.name END AS job,
    CASE kind WHEN 'Sweep' THEN owned_runs.name END AS sweep,
    CASE kind WHEN 'TrainingRun' THEN owned_runs.name END AS training_run,
    idx, attempt, params, step, metrics.name AS metric, value,
    strftime('%Y-%m-%dT%H:%M:%SZ', at_s, 'unixepoch') AS at, namespace, deleted_at
FROM temp.owned_runs JOIN state.metrics USING (run_id) WHERE seq >= 0;

-- name: events
-- What happened.
SELECT owner.kind, owner.name, lower(owner.kind) || '/' || owner.name
        || CASE namespace WHEN 'default' THEN '' ELSE ' -n ' || namespace END AS object,
    at, type, reason, message, hint, count, namespace, deleted_at
FROM (
    SELECT coalesce(resources.kind, gone.kind) AS kind,
        coalesce(resources.name, gone.shown) AS name,
        coalesce(resources.namespace, gone.namespace) AS namespace,
        strftime('%Y-%m-%dT%H:%M:%SZ', at_s, 'unixepoch') AS at, events.kind AS type,
        events.reason, message, hint, count,
        strftime('%Y-%m-%dT%H:%M:%SZ', gone.gone_at_s, 'unixepoch') AS deleted_at
    FROM log.events LEFT JOIN state.resources USING (uid) LEFT JOIN state.gone USING (uid)
) AS owner;

-- name: reuses
-- Every unit whose result was taken from the cache: whose it was, and what that had cost. NULL where
-- nobody knows the price, or where the cache has forgotten the run since.
SELECT kind, name, lower(kind) || '/' || name
        || CASE namespace WHEN 'default' THEN '' ELSE ' -n ' || namespace END AS object,
    owned_runs.idx, cache.object AS of_object, cache.idx AS of_idx, cache.run AS of_run,
    cache.duration_s AS saved_s, cache.usd AS saved_usd,
    strftime('%Y-%m-%dT%H:%M:%SZ', owned_runs.ended_at_s, 'unixepoch') AS at, uid, namespace,
    deleted_at
FROM temp.owned_runs
    LEFT JOIN state.cache ON cache.entry = (SELECT max(entry) FROM state.cache AS known
        WHERE known.run = substr(message, instr(message, ', run ') + 6))
WHERE reason = 'Cached';

-- name: warm
-- Functions that keep containers warm, or did: how many now, how many seconds all of them were
-- there, and what that cost up to now, idle or not. usd is of those seconds whose price is known.
SELECT kind, name, lower(kind) || '/' || name
        || CASE namespace WHEN 'default' THEN '' ELSE ' -n ' || namespace END AS object,
    json_extract(status, '$.cost.provider') AS provider,
    coalesce(json_extract(status, '$.warm.containers'), 0) AS containers,
    coalesce(json_extract(status, '$.cost.seconds'), 0.0) + coalesce(
        json_extract(status, '$.warm.containers')
            * max(0.0, now_s() - json_extract(status, '$.warm.since')), 0.0) AS seconds,
    coalesce(json_extract(status, '$.cost.actual'), 0.0) + coalesce(
        json_extract(status, '$.warm.usdPerSecond')
            * max(0.0, now_s() - json_extract(status, '$.warm.since')), 0.0) AS usd,
    json_extract(status, '$.warm.usdPerSecond') * 3600 AS usd_per_h,
    json_extract(status, '$.cost.unpricedSeconds') IS NOT NULL
        OR (json_extract(status, '$.warm.containers') IS NOT NULL
            AND json_extract(status, '$.warm.usdPerSecond') IS NULL) AS unpriced,
    strftime('%Y-%m-%dT%H:%M:%SZ', json_extract(status, '$.cost.from'), 'unixepoch') AS since,
    strftime('%Y-%m-%dT%H:%M:%SZ', CASE WHEN json_extract(status, '$.warm.since') IS NULL
        THEN json_extract(status, '$.cost.until') END, 'unixepoch') AS until,
    uid, namespace, deleted_at
FROM (
    SELECT kind, name, namespace, status, uid, NULL AS deleted_at
    FROM state.resources WHERE kind = 'Function'
    UNION ALL
    SELECT kind, shown, namespace, status, uid,
        strftime('%Y-%m-%dT%H:%M:%SZ', gone_at_s, 'unixepoch')
    FROM state.gone WHERE kind = 'Function'
) WHERE json_extract(nullif(status, ''), '$.cost.from');

-- name: calls
-- What every run asked of model endpoints, as their gateway counted it last. Times are of the newest
-- calls: waiting for a slot, and being answered.
SELECT attempts.kind, attempts.name, attempts.object, attempts.job, attempts.sweep,
    attempts.training_run, attempts.idx, attempts.attempt, attempts.state, calls.endpoint,
    calls.calls, calls.tries, calls.fallbacks, calls.hits, calls.refused, calls.unpriced,
    calls.tokens_in, calls.tokens_out, calls.usd, calls.waiting_ms_p50, calls.waiting_ms_p95,
    calls.answer_ms_p50, calls.answer_ms_p95, attempts.duration_s, attempts.ended_at, attempts.run,
    attempts.uid, attempts.namespace, attempts.deleted_at
FROM state.calls CROSS JOIN state.runs USING (run_id)
    CROSS JOIN temp.attempts ON attempts.run = runs.name;

-- name: endpoints
-- Every Endpoint: what it was asked in all, and how busy it is.
SELECT name, lower(kind) || '/' || name
        || CASE namespace WHEN 'default' THEN '' ELSE ' -n ' || namespace END AS object,
    json_extract(status, '$.phase') AS phase, json_extract(status, '$.reason') AS reason,
    json_extract(status, '$.concurrency') AS concurrency,
    json_extract(status, '$.inFlight') AS in_flight, json_extract(status, '$.queue') AS queue,
    json_extract(status, '$.calls') AS calls, json_extract(status, '$.tries') AS tries,
    json_extract(status, '$.fallbacks') AS fallbacks, json_extract(status, '$.cacheHits') AS hits,
    json_extract(status, '$.refusedCalls') AS refused,
    json_extract(status, '$.tokensIn') AS tokens_in,
    json_extract(status, '$.tokensOut') AS tokens_out, json_extract(status, '$.cost.actual') AS usd,
    coalesce(json_extract(status, '$.cost.unpricedCalls'), 0) AS unpriced,
    json_extract(status, '$.latency.waitingMsP95') AS waiting_ms_p95,
    json_extract(status, '$.latency.answerMsP50') AS answer_ms_p50,
    json_extract(status, '$.latency.answerMsP95') AS answer_ms_p95, uid, namespace
FROM (
    SELECT kind, name, namespace, uid, nullif(status, '') AS status FROM state.resources
    WHERE kind = 'Endpoint' AND deleted_at_s IS NULL
);

-- name: costs
-- Money and time by object and provider, or endpoint; failed_usd is what attempts cost that led to
-- nothing.
SELECT kind, name, object, job, sweep, training_run, provider,
    sum(attempts) AS attempts, sum(unpriced) AS unpriced_attempts,
    sum(seconds) AS seconds, sum(usd) AS usd,
    sum(CASE WHEN state IN ('Failed', 'Cancelled') THEN usd END) AS failed_usd, namespace,
    deleted_at
FROM (
    SELECT kind, name, object, job, sweep, training_run, provider, state, 1 AS attempts,
        usd IS NULL AS unpriced, duration_s AS seconds, usd, namespace, deleted_at
    FROM temp.attempts
    UNION ALL
    SELECT kind, name, object, job, sweep, training_run, 'endpoint/' || endpoint, state, 0,
        unpriced > 0, 0.0, usd, namespace, deleted_at
    FROM temp.calls
) GROUP BY object, provider;

-- name: interpreters
-- Sandboxes of interpreters, which programs made on this machine: parent is the run whose code asked
-- for it in a recursive query, NULL where a program did. Calls of contexts are those of the sandbox
-- that they are in. What one used that was killed nobody knows: NULL.
SELECT name AS run, parent, depth, provider, state, nullif(reason, '') AS reason, host, pid,
    strftime('%Y-%m-%dT%H:%M:%SZ', created_at_s, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', started_at_s, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', ended_at_s, 'unixepoch') AS ended_at,
    max(0.0, coalesce(ended_at_s, now_s()) - started_at_s) AS duration_s,
    CASE WHEN usage IS NOT NULL THEN coalesce(
        (SELECT sum(json_extract(value, '$.calls')) FROM json_each(usage)), 0) END AS calls,
    CASE WHEN usage IS NOT NULL THEN coalesce(
        (SELECT sum(json_extract(value, '$.tokens')) FROM json_each(usage)), 0) END AS tokens,
    CASE WHEN usage IS NOT NULL THEN coalesce(
        (SELECT sum(json_extract(value, '$.usd')) FROM json_each(usage)), 0.0) END AS llm_usd,
    CASE WHEN usage IS NOT NULL THEN coalesce(
        (SELECT sum(json_extract(value, '$.unpriced')) FROM json_each(usage)), 0) END AS unpriced,
    usage
FROM interpreters.runs;
