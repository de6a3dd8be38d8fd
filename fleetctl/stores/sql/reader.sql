-- What the CLI asks of the files that the writer keeps. Nothing here touches a spec unless it must.

-- name: resources
SELECT uid, kind, name, generation, version, created_at_s, deleted_at_s, labels, annotations,
    status, NULL, namespace
FROM resources WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR namespace = ?2) ORDER BY rid;

-- name: resources_and_specs
SELECT uid, kind, name, generation, version, created_at_s, deleted_at_s, labels, annotations,
    status, spec, namespace
FROM resources JOIN specs USING (rid)
WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR namespace = ?2) ORDER BY rid;

-- name: marks
-- By two indexes: those that a pass may still write, and those whose spec changed since.
SELECT rid, version, change, wake_at_s IS NOT NULL FROM resources
WHERE wake_at_s IS NOT NULL OR change > ?1;

-- name: resources_at
-- The one parameter becomes as many as there are row numbers.
SELECT uid, kind, name, generation, version, created_at_s, deleted_at_s, labels, annotations,
    status, NULL, namespace, rid
FROM resources WHERE rid IN (?);

-- name: resource
-- The living one.
SELECT uid, kind, name, generation, version, created_at_s, deleted_at_s, labels, annotations,
    status, spec, namespace
FROM resources JOIN specs USING (rid) WHERE kind = ? AND name = ? AND namespace = ?
    AND deleted_at_s IS NULL;

-- name: resource_going
-- The newest of those being deleted; looks at every object.
SELECT uid, kind, name, generation, version, created_at_s, deleted_at_s, labels, annotations,
    status, spec, namespace
FROM resources JOIN specs USING (rid) WHERE kind = ? AND name = ? AND namespace = ?
    AND deleted_at_s IS NOT NULL
ORDER BY rid DESC LIMIT 1;

-- name: standing
-- Which indexes failed, whether nothing more comes, and the contents that are wished for.
SELECT json_extract(nullif(status, ''), '$.failedIndexes'), deleted_at_s IS NOT NULL
    OR (json_extract(nullif(status, ''), '$.phase') IN ('Succeeded', 'Failed', 'Skipped')
        AND json_extract(nullif(status, ''), '$.observedGeneration') >= generation),
    json_extract(nullif(status, ''), '$.contents')
FROM resources WHERE rid = ?1
UNION ALL
SELECT json_extract(nullif(status, ''), '$.failedIndexes'), 1,
    json_extract(nullif(status, ''), '$.contents')
FROM gone WHERE rid = ?1;

-- name: names
-- Living ones that begin with a text, by name. The bounds let the index of names serve.
SELECT name FROM resources
WHERE deleted_at_s IS NULL AND kind = ?1 AND namespace = ?4 AND name >= ?2
    AND substr(name, 1, length(?2)) = ?2
ORDER BY name LIMIT ?3;

-- name: resource_of
SELECT uid, kind, name, generation, version, created_at_s, deleted_at_s, labels, annotations,
    status, spec, namespace
FROM resources JOIN specs USING (rid) WHERE uid = ?;

-- name: runs
-- Parameters: uid, index or NULL, a bit for every state that is wanted, the first index.
SELECT idx, attempt, state, runs.name, provider.word, sandbox, handle, runs.created_at_s,
    started_at_s, ended_at_s, exit_code, reason, message, sandbox_open, usd_per_s, params,
    why.word, stood_for.word, wandb, hint
FROM resources CROSS JOIN runs USING (rid)
    JOIN words AS provider ON provider.word_id = runs.provider
    LEFT JOIN words AS why ON why.word_id = runs.placed
    LEFT JOIN words AS stood_for ON stood_for.word_id = runs.content
WHERE uid = ?1 AND (?2 IS NULL OR idx = ?2) AND (1 << state) & ?3 AND idx >= ?4
ORDER BY idx, attempt;

-- name: runs_and_results
-- As `runs`, with the result.
SELECT idx, attempt, state, runs.name, provider.word, sandbox, handle, runs.created_at_s,
    started_at_s, ended_at_s, exit_code, reason, message, sandbox_open, usd_per_s, params,
    why.word, stood_for.word, wandb, hint, result
FROM resources CROSS JOIN runs USING (rid)
    JOIN words AS provider ON provider.word_id = runs.provider
    LEFT JOIN words AS why ON why.word_id = runs.placed
    LEFT JOIN words AS stood_for ON stood_for.word_id = runs.content
    LEFT JOIN results USING (run_id)
WHERE uid = ?1 AND (?2 IS NULL OR idx = ?2) AND (1 << state) & ?3 AND idx >= ?4
ORDER BY idx, attempt;

-- name: run
SELECT idx, attempt, state, runs.name, provider.word, sandbox, handle, runs.created_at_s,
    started_at_s, ended_at_s, exit_code, reason, message, sandbox_open, usd_per_s, params,
    why.word, stood_for.word, wandb, hint
FROM runs JOIN words AS provider ON provider.word_id = runs.provider
    LEFT JOIN words AS why ON why.word_id = runs.placed
    LEFT JOIN words AS stood_for ON stood_for.word_id = runs.content
WHERE runs.name = ?;

-- name: owner_of
-- The object that a run was made for, by its uid.
SELECT uid FROM runs JOIN resources USING (rid) WHERE runs.name = ?;

-- name: held
-- Every run that holds a sandbox, also one that waits for its next task.
SELECT runs.name, sandbox, handle FROM runs JOIN resources USING (rid)
WHERE state <= 2 OR sandbox_open;

-- name: store_id
SELECT store_id FROM store;

-- name: metrics
-- Numbers below 0 are samples of the machine, which no program reported.
SELECT seq, step, metrics.name, value, at_s FROM metrics JOIN runs USING (run_id)
WHERE runs.name = ? AND seq >= 0 ORDER BY seq;

-- name: checkpoints
-- What the runs of an object saved, the newest last.
SELECT idx, attempt, step, path, at_s, bytes, took_s
FROM resources CROSS JOIN runs USING (rid) CROSS JOIN checkpoints USING (run_id)
WHERE uid = ? ORDER BY at_s, step;

-- name: resumed_steps
-- Of checkpoints from which runs of an object began.
SELECT DISTINCT resumed_step FROM resources CROSS JOIN runs USING (rid)
WHERE uid = ? AND resumed_step IS NOT NULL;

-- name: metric_ends
-- With max() alone, SQLite takes the other columns from the row that has it.
SELECT metrics.name, count(*), step, value, at_s, max(seq) FROM metrics JOIN runs USING (run_id)
WHERE runs.name = ? AND seq >= 0 GROUP BY 1 ORDER BY 1;

-- name: metric_names
SELECT DISTINCT metrics.name FROM metrics JOIN runs USING (run_id)
WHERE runs.name = ? AND seq >= 0 ORDER BY 1;

-- name: points
SELECT step, value, at_s FROM metrics
WHERE run_id = (SELECT run_id FROM runs WHERE name = ?) AND name = ? AND seq >= 0 ORDER BY seq;

-- name: samples
SELECT seq, step, metrics.name, value, at_s FROM metrics JOIN runs USING (run_id)
WHERE runs.name = ? AND seq < 0 ORDER BY seq;

-- name: live_runs
SELECT uid, count(*) FROM runs JOIN resources USING (rid) WHERE state <= 2 GROUP BY rid;

-- name: live_prices
-- Parameters: uid, seconds since the epoch now. What the runs that hold a sandbox cost, so far and an hour.
SELECT count(*), coalesce(sum(usd_per_s * max(0.0, ?2 - started_at_s)), 0.0),
    coalesce(sum(usd_per_s) * 3600, 0.0), coalesce(sum(usd_per_s IS NULL), 0)
FROM runs WHERE rid = (SELECT rid FROM resources WHERE uid = ?1) AND state <= 2
    AND started_at_s IS NOT NULL;

-- name: events_of
SELECT uid, at_s, kind, reason, message, count, hint FROM events WHERE uid = ?1 AND at_s >= ?2
ORDER BY seq DESC LIMIT ?3;

-- name: events
SELECT uid, at_s, kind, reason, message, count, hint FROM events WHERE at_s >= ?1
ORDER BY at_s DESC, seq DESC LIMIT ?2;

-- name: notices
SELECT id, event, uid, object, namespace, sink, state, tries, problem, at_s, due_at_s, ended_at_s,
    message, body
FROM notices ORDER BY nid;

-- name: notices_of
SELECT id, event, uid, object, namespace, sink, state, tries, problem, at_s, due_at_s, ended_at_s,
    message, body
FROM notices WHERE uid = ?1 ORDER BY nid;

-- name: keys
SELECT uid, kind, name, namespace FROM resources;

-- name: all_keys
-- Of what is there, and of what is gone: when that was.
SELECT uid, kind, name, namespace, NULL FROM resources
UNION ALL
SELECT uid, kind, shown, namespace, gone_at_s FROM gone;

-- name: gone
-- uid, shown name and when it went: all that had this name, the oldest first.
SELECT uid, shown, gone_at_s FROM gone WHERE kind = ? AND name = ? AND namespace = ?
ORDER BY gone_at_s, rid;

-- name: gone_since
SELECT uid, kind, name, namespace, gone_at_s FROM gone WHERE gone_at_s >= ?1
ORDER BY gone_at_s, rid;

-- name: durations_of_template
-- Seconds of the newest runs that succeeded with a template, whoever's they were.
-- Of a template that never ran, no run is looked at.
SELECT ended_at_s - started_at_s FROM words CROSS JOIN runs ON template_hash = word_id
WHERE word = ? AND state = 3 AND started_at_s IS NOT NULL AND ended_at_s > started_at_s
ORDER BY run_id DESC LIMIT ?;

-- name: durations_of_object
SELECT ended_at_s - started_at_s FROM runs JOIN resources USING (rid)
WHERE uid = ? AND state = 3 AND started_at_s IS NOT NULL AND ended_at_s > started_at_s
ORDER BY run_id DESC LIMIT ?;

-- name: durations_of_queue
-- The parameter: how the words begin that tell what a run takes of the queue.
SELECT ended_at_s - started_at_s FROM runs
WHERE queued IN (SELECT word_id FROM words WHERE word LIKE ?) AND state = 3
    AND started_at_s IS NOT NULL AND ended_at_s > started_at_s
ORDER BY run_id DESC LIMIT ?;

-- name: namespaces
-- Those in use, and how many objects of each kind they have. What belongs to none is left out.
SELECT namespace, kind, count(*) FROM resources WHERE kind NOT IN ('Provider', 'Queue')
GROUP BY namespace, kind ORDER BY namespace, kind;

-- name: held_by_provider
-- Sandboxes that are there: where, at what price a second, and how many.
SELECT provider.word, usd_per_s, COUNT(DISTINCT COALESCE(sandbox, runs.name)) FROM runs
JOIN words AS provider ON provider.word_id = runs.provider
JOIN resources USING (rid)
WHERE state <= 2 OR sandbox_open GROUP BY provider.word, usd_per_s;

-- name: runs_by_state
SELECT provider.word, state, count(*), sum(CASE WHEN state <= 2 THEN usd_per_s END)
FROM runs JOIN words AS provider ON provider.word_id = runs.provider
GROUP BY runs.provider, state;

-- name: ended_runs
SELECT runs.name FROM resources CROSS JOIN runs USING (rid)
WHERE uid = ? AND state > 2 AND NOT sandbox_open;

-- name: record_bytes
-- As `bury` in state.sql counts them.
SELECT uid, 300 * coalesce(held.runs, 0) + 60 * coalesce(told.metrics, 0)
    + coalesce(given.results, 0) + length(spec)
FROM resources JOIN specs USING (rid)
    LEFT JOIN (SELECT rid, count(*) AS runs FROM runs GROUP BY rid) AS held USING (rid)
    LEFT JOIN (SELECT rid, count(*) AS metrics FROM metrics JOIN runs USING (run_id) GROUP BY rid)
        AS told USING (rid)
    LEFT JOIN (SELECT rid, sum(length(result)) AS results FROM results JOIN runs USING (run_id)
        GROUP BY rid) AS given USING (rid);

-- name: gone_records
SELECT uid, kind, shown, namespace, bytes, gone_at_s FROM gone ORDER BY gone_at_s;

-- name: series_bytes
-- What `thin_to_last` in state.sql would take of each object, or a little more.
SELECT uid, 60 * sum(reports - names) FROM (
    SELECT rid, count(*) AS reports, count(DISTINCT metrics.name) AS names
    FROM runs JOIN metrics USING (run_id) GROUP BY run_id
) JOIN resources USING (rid) GROUP BY uid HAVING sum(reports - names) > 0;

-- name: events_bytes
-- Of each object: about what its events take, and when the newest of them was.
SELECT uid, sum(length(message) + length(reason) + 100), max(at_s) FROM events
GROUP BY uid HAVING count(*) > 1;

-- name: reuse_bytes
-- By the object that may take them as its own: about what they take, and when the newest was made.
SELECT owner, sum(coalesce(length(result), 0) + length(metrics) + 200), max(ended_at_s) FROM cache
GROUP BY owner;
