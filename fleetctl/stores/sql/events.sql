-- What the writer asks of events.db.

-- name: last_seq
SELECT max(seq) FROM events WHERE uid = ?;

-- name: last_same
SELECT seq, at_s, reason, message, hint FROM events WHERE uid = ? AND digest = ?
ORDER BY seq DESC LIMIT 1;

-- name: repeat
-- A repeat moves to the end, so that the ring keeps what was seen last.
UPDATE events SET seq = ?, at_s = ?, count = count + ?, kind = ? WHERE uid = ? AND seq = ?;

-- name: insert
INSERT INTO events (uid, seq, at_s, count, digest, kind, reason, message, hint)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: trim
-- A range at the start of the primary key: nothing or one row, however long the ring.
DELETE FROM events WHERE uid = ? AND seq <= ?;

-- name: rename
UPDATE events SET uid = ? WHERE uid = ?;

-- name: drop
DELETE FROM events WHERE uid = ?;

-- name: uids
-- Steps from one uid to the next through the primary key instead of reading every event.
WITH RECURSIVE step (uid) AS (
    SELECT min(uid) FROM events
    UNION ALL
    SELECT (SELECT min(events.uid) FROM events WHERE events.uid > step.uid)
    FROM step WHERE step.uid IS NOT NULL
)
SELECT uid FROM step WHERE uid IS NOT NULL;
