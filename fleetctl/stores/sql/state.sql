-- What the writer asks of state.db. A parameter order is the column order unless a comment says
-- otherwise.

-- name: fence
-- Asked first in every transaction: has another process opened the store after us?
SELECT epoch FROM store;

-- name: identity
SELECT store_id, epoch, changes FROM store;

-- name: found_store
INSERT INTO store (id, store_id, epoch, changes, created_at_s) VALUES (1, ?, 0, 0, ?);

-- name: take_epoch
UPDATE store SET epoch = ?;

-- name: keep_changes
UPDATE store SET changes = ?;

-- name: get_resource
SELECT uid, kind, name, generation, version, spec, status, labels, annotations,
    created_at_s, deleted_at_s, namespace
FROM resources JOIN specs USING (rid)
WHERE kind = ? AND name = ? AND namespace = ? AND deleted_at_s IS NULL;

-- name: resource_of
SELECT uid, kind, name, generation, version, spec, status, labels, annotations,
    created_at_s, deleted_at_s, namespace
FROM resources JOIN specs USING (rid)
WHERE uid = ?;

-- name: living_resources
SELECT uid, kind, name, generation, version, spec, status, labels, annotations,
    created_at_s, deleted_at_s, namespace
FROM resources JOIN specs USING (rid)
WHERE kind = ? AND deleted_at_s IS NULL
ORDER BY resources.rid;

-- name: resources_naming
SELECT uid, kind, name, generation, version, spec, status, labels, annotations,
    created_at_s, deleted_at_s, namespace
FROM resources JOIN specs USING (rid)
WHERE instr(spec, ?) AND deleted_at_s IS NULL
ORDER BY resources.rid;

-- name: annotations
SELECT DISTINCT annotations FROM resources WHERE annotations <> '{}';

-- name: list_resources
SELECT uid, kind, name, generation, version, spec, status, labels, annotations,
    created_at_s, deleted_at_s, namespace
FROM resources JOIN specs USING (rid)
ORDER BY resources.rid;

-- name: insert_resource
INSERT INTO resources (uid, kind, name, generation, version, change, created_at_s, deleted_at_s,
    labels, annotations, status, namespace)
VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_spec
INSERT INTO specs (rid, spec) VALUES (?, ?);

-- name: stored_resource
-- What a replacement needs to know of the row that it replaces.
SELECT rid, version, status, created_at_s, deleted_at_s, name FROM resources WHERE uid = ?;

-- name: replace_resource
UPDATE resources SET name = ?, generation = ?, version = ?, change = ?, deleted_at_s = ?,
    labels = ?, annotations = ?, wake_at_s = 0
WHERE rid = ?;

-- name: replace_spec
-- Comparing megabytes is cheaper than writing them to the log again.
UPDATE specs SET spec = ?1 WHERE rid = ?2 AND spec <> ?1;

-- name: put_status
UPDATE resources SET status = ?, version = version + 1, wake_at_s = 0 WHERE uid = ? AND version = ?;

-- name: sleep
UPDATE resources SET wake_at_s = ? WHERE uid = ? AND version = ?;

-- name: awake
-- The index holds no sleeper; left to choose, SQLite walks over all rows to have them in order.
SELECT uid FROM resources INDEXED BY resources_awake WHERE wake_at_s <= ? ORDER BY rid;

-- name: next_wake
SELECT min(wake_at_s) FROM resources WHERE wake_at_s > ?;

-- name: changed_resources
SELECT uid, kind, name, generation, version, spec, status, labels, annotations,
    created_at_s, deleted_at_s, namespace
FROM resources JOIN specs USING (rid)
WHERE change > ? ORDER BY change;

-- name: rid_of
SELECT rid FROM resources WHERE uid = ?;

-- name: end_runs
UPDATE runs SET state = 6, ended_at_s = coalesce(ended_at_s, ?), reason = 'Deleted',
    sandbox_open = 0
WHERE rid = ? AND state <= 2;

-- name: bury
-- About what it keeps: a row of a run has some 300 bytes, one of a metric 60.
INSERT INTO gone (rid, uid, kind, name, namespace, generation, created_at_s, gone_at_s, labels,
    status, bytes, shown)
SELECT rid, uid, kind, name, namespace, generation, created_at_s, ?1, labels, status,
    (SELECT 300 * count(*) FROM runs WHERE runs.rid = ?2)
    + (SELECT 60 * count(*) FROM metrics
        WHERE run_id IN (SELECT run_id FROM runs WHERE runs.rid = ?2))
    + (SELECT coalesce(sum(length(result)), 0) FROM results
        WHERE run_id IN (SELECT run_id FROM runs WHERE runs.rid = ?2)),
    name
FROM resources WHERE rid = ?2;

-- name: gone_key
SELECT kind, namespace, name FROM gone WHERE rid = ?;

-- name: gone_of
SELECT rid FROM gone WHERE uid = ?;

-- name: is_named
SELECT 1 FROM resources WHERE kind = ? AND namespace = ? AND name = ? LIMIT 1;

-- name: retitle_gone
-- The last parameter: the one that keeps the plain name; NULL = none does.
UPDATE gone SET shown = name || ' (deleted ' || strftime('%Y-%m-%dT%H:%M:%SZ', gone_at_s,
    'unixepoch') || ')'
WHERE kind = ? AND namespace = ? AND name = ? AND shown = name AND rid IS NOT ?;

-- name: rename_gone
UPDATE gone SET uid = ? WHERE rid = ?;

-- name: rename_runs
UPDATE runs SET sandbox = coalesce(sandbox, name), name = name || ? WHERE rid = ?;

-- name: gone_uids
SELECT uid FROM gone;

-- name: oldest_gone
SELECT rid, uid, gone_at_s FROM gone ORDER BY gone_at_s LIMIT 1;

-- name: sum_gone
SELECT count(*), coalesce(sum(bytes), 0) FROM gone;

-- name: forget_gone
DELETE FROM gone WHERE rid = ?;

-- name: thin_metrics
DELETE FROM metrics WHERE (run_id, seq) IN (SELECT run_id, seq
    FROM runs CROSS JOIN metrics USING (run_id) WHERE rid = ? LIMIT ?);

-- name: thin_to_last
-- A report goes where a later one of its run and name has a number.
DELETE FROM metrics WHERE (run_id, seq) IN (SELECT old.run_id, old.seq
    FROM resources CROSS JOIN runs USING (rid) CROSS JOIN metrics AS old USING (run_id)
    WHERE uid = ? AND EXISTS (SELECT 1 FROM metrics AS later WHERE later.run_id = old.run_id
        AND later.seq > old.seq AND later.name = old.name AND abs(later.value) < 9e999)
    LIMIT ?);

-- name: thin_checkpoints
DELETE FROM checkpoints WHERE (run_id, step, path) IN (SELECT run_id, step, path
    FROM runs CROSS JOIN checkpoints USING (run_id) WHERE rid = ? LIMIT ?);

-- name: thin_results
DELETE FROM results WHERE run_id IN (SELECT run_id
    FROM runs CROSS JOIN results USING (run_id) WHERE rid = ? LIMIT ?);

-- name: thin_runs
DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE rid = ? LIMIT ?);

-- name: drop_spec
DELETE FROM specs WHERE rid = ?;

-- name: drop_resource
DELETE FROM resources WHERE rid = ?;

-- name: list_uids
SELECT uid FROM resources;

-- name: word_id
SELECT word_id FROM words WHERE word = ?;

-- name: insert_word
INSERT OR IGNORE INTO words (word) VALUES (?);

-- name: insert_run
INSERT INTO runs (rid, idx, attempt, name, created_at_s, state, provider, template_hash,
    sandbox_open, exit_code, journal_offset, started_at_s, ended_at_s, sandbox, handle, reason,
    message, usd_per_s, placed, usd, put_aside, content, resumed_step, saved_step, queued,
    worth_s, worth_usd, params_hash, wandb, hint, params)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: advance_run
-- Compare-and-swap: the last parameter has a bit set for every state that the run may be in now.
-- What an object left behind that is gone changes no more.
UPDATE runs SET state = ?, provider = ?, template_hash = ?, sandbox_open = ?, exit_code = ?,
    journal_offset = ?, started_at_s = ?, ended_at_s = ?, sandbox = ?, handle = ?, reason = ?,
    message = ?, usd_per_s = ?, placed = ?, usd = ?, put_aside = put_aside OR ?,
    content = ?, resumed_step = ?, saved_step = ?, queued = ?, worth_s = ?, worth_usd = ?,
    params_hash = ?, wandb = ?, hint = ?, params = ?
WHERE name = ? AND (1 << state) & ?
    AND EXISTS (SELECT 1 FROM resources WHERE resources.rid = runs.rid);

-- name: run_id
SELECT run_id FROM runs WHERE name = ?;

-- name: keep_result
INSERT OR REPLACE INTO results (run_id, result) VALUES (?, ?);

-- name: keep_metric
INSERT OR IGNORE INTO metrics (run_id, seq, step, name, value, at_s) VALUES (?, ?, ?, ?, ?, ?);

-- name: keep_checkpoint
INSERT OR REPLACE INTO checkpoints (run_id, step, path, at_s, bytes, took_s)
VALUES (?, ?, ?, ?, ?, ?);

-- name: checkpoints_of
-- Of all runs of an object, the newest last.
SELECT step, path, at_s, bytes, took_s
FROM runs CROSS JOIN checkpoints USING (run_id) WHERE rid = ? ORDER BY at_s, step;

-- name: runs_page
-- The next page after (idx, attempt): pages, not one long cursor, so that writes may go on between
-- them.
SELECT runs.name, idx, attempt, state, provider.word, sandbox, template.word, params, params_hash,
    created_at_s, handle, started_at_s, ended_at_s, exit_code, reason, message, journal_offset,
    sandbox_open, usd_per_s, why.word, usd, put_aside, stood_for.word, wandb, resumed_step,
    saved_step, takes.word, worth_s, worth_usd, hint, result
FROM runs
    JOIN words AS provider ON provider.word_id = runs.provider
    JOIN words AS template ON template.word_id = runs.template_hash
    LEFT JOIN words AS why ON why.word_id = runs.placed
    LEFT JOIN words AS stood_for ON stood_for.word_id = runs.content
    LEFT JOIN words AS takes ON takes.word_id = runs.queued
    LEFT JOIN results USING (run_id)
WHERE rid = ? AND (idx, attempt) > (?, ?)
ORDER BY idx, attempt
LIMIT ?;

-- name: metrics_of
SELECT seq, step, metrics.name, value, at_s
FROM runs CROSS JOIN resources USING (rid) CROSS JOIN metrics USING (run_id)
WHERE runs.name = ? AND seq > ? AND seq >= 0 ORDER BY seq LIMIT ?;

-- name: last_values
-- The last finite number of each metric: a number that is none (NaN) is stored as NULL.
SELECT metrics.name, value, max(seq)
FROM runs CROSS JOIN resources USING (rid) CROSS JOIN metrics USING (run_id)
WHERE runs.name = ? AND seq >= 0 AND abs(value) < 9e999 GROUP BY metrics.name ORDER BY max(seq);

-- name: last_step
SELECT max(step) FROM runs CROSS JOIN resources USING (rid) CROSS JOIN metrics USING (run_id)
WHERE runs.name = ? AND seq >= 0;

-- name: add_to_ledger
INSERT INTO ledger (day, namespace, labels, usd, unpriced_s) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (day, namespace, labels) DO UPDATE SET usd = usd + excluded.usd,
    unpriced_s = unpriced_s + excluded.unpriced_s;

-- name: read_ledger
SELECT day, labels, usd, unpriced_s, namespace FROM ledger ORDER BY day, namespace, labels;

-- name: calls_of_run
SELECT runs.run_id, endpoint, calls, tries, fallbacks, hits, refused, unpriced, tokens_in,
    tokens_out, calls.usd
FROM runs LEFT JOIN calls ON calls.run_id = runs.run_id AND endpoint = ?2 WHERE name = ?1;

-- name: record_calls
INSERT OR REPLACE INTO calls (run_id, endpoint, calls, tries, fallbacks, hits, refused, unpriced,
    tokens_in, tokens_out, usd, waiting_ms_p50, waiting_ms_p95, answer_ms_p50, answer_ms_p95)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_endpoint_calls
INSERT INTO asked (uid, calls, tries, fallbacks, hits, refused, unpriced, tokens_in, tokens_out,
    usd)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (uid) DO UPDATE SET calls = calls + excluded.calls, tries = tries + excluded.tries,
    fallbacks = fallbacks + excluded.fallbacks, hits = hits + excluded.hits,
    refused = refused + excluded.refused, unpriced = unpriced + excluded.unpriced,
    tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out,
    usd = usd + excluded.usd;

-- name: read_endpoint_calls
SELECT calls, tries, fallbacks, hits, refused, unpriced, tokens_in, tokens_out, usd FROM asked
WHERE uid = ?;

-- name: forget_endpoint_calls
DELETE FROM asked WHERE uid = ?;

-- name: calls_usd
SELECT coalesce(sum(calls.usd), 0)
FROM resources CROSS JOIN runs USING (rid) CROSS JOIN calls USING (run_id) WHERE uid = ?;

-- name: thin_calls
DELETE FROM calls WHERE (run_id, endpoint) IN (SELECT run_id, endpoint
    FROM runs CROSS JOIN calls USING (run_id) WHERE rid = ? LIMIT ?);

-- name: add_create
INSERT INTO creates (provider, at_s) VALUES (?, ?);

-- name: forget_creates
DELETE FROM creates WHERE provider = ? AND at_s <= ?;

-- name: creates
SELECT at_s FROM creates WHERE provider = ? ORDER BY at_s;

-- name: drop_run
-- Takes back an intent of the same transaction, when a later one of its batch cannot be.
DELETE FROM runs WHERE name = ?;

-- name: remember
-- A newer success of the same work takes the place of the older one, and becomes the newest.
INSERT OR REPLACE INTO cache (template_key, unit_key, result, metrics, run, object, idx, duration_s,
    usd, ended_at_s, bytes_so_far, owner)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: recall
-- Parameters: template key, seconds since the epoch that it ended after, whether any owner will do,
-- a JSON array of owners.
SELECT unit_key FROM cache WHERE template_key = ?1 AND ended_at_s > ?2
    AND (?3 OR owner IN (SELECT value FROM json_each(?4)));

-- name: remembered
-- The same, and: unit key, the owner whose own comes first.
SELECT template_key, unit_key, result, metrics, run, object, idx, duration_s, usd, ended_at_s, owner
FROM cache WHERE template_key = ?1 AND ended_at_s > ?2
    AND (?3 OR owner IN (SELECT value FROM json_each(?4))) AND unit_key = ?5
ORDER BY owner = ?6 DESC, entry DESC LIMIT 1;

-- name: remembered_of
SELECT template_key, unit_key, result, metrics, run, object, idx, duration_s, usd, ended_at_s, owner
FROM cache WHERE owner = ? ORDER BY entry;

-- name: forget_successes_of
DELETE FROM cache WHERE owner = ?;

-- name: forget_success
DELETE FROM cache WHERE run = ?;

-- name: newest_remembered
SELECT entry, bytes_so_far FROM cache ORDER BY entry DESC LIMIT 1;

-- name: oldest_remembered
SELECT entry, bytes_so_far FROM cache ORDER BY entry LIMIT 1;

-- name: drop_remembered
DELETE FROM cache WHERE entry = ?;

-- name: add_notice
INSERT INTO notices (id, sink, uid, object, namespace, event, body, at_s, deadline_s, state, tries,
    due_at_s, message, problem, ended_at_s)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id, sink) DO NOTHING;

-- name: waiting_notices
SELECT id, sink, uid, object, namespace, event, body, at_s, deadline_s, state, tries, due_at_s,
    message, problem, ended_at_s, nid
FROM notices WHERE state = 'Waiting' AND nid > ? ORDER BY nid LIMIT ?;

-- name: advance_notice
UPDATE notices SET state = ?, tries = ?, due_at_s = ?, message = ?, problem = ?, ended_at_s = ?
WHERE nid = ? AND state = 'Waiting';

-- name: forget_notices
-- Of those that are over, the oldest beyond so many.
DELETE FROM notices WHERE nid IN (
    SELECT nid FROM notices WHERE state <> 'Waiting' ORDER BY nid DESC LIMIT -1 OFFSET ?
);
