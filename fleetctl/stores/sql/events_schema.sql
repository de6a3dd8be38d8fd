-- events.db: sentences for people (WAL, synchronous=NORMAL). Losing it loses no wish and no
-- outcome.

CREATE TABLE events (
    uid TEXT NOT NULL,
    seq INTEGER NOT NULL,          -- per uid, rises; a repeat takes a new one
    at_s REAL NOT NULL,            -- the newest of the repeats
    count INTEGER NOT NULL,
    digest INTEGER NOT NULL,       -- of reason, message and hint, to find repeats
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    hint TEXT,                     -- what a person can do about it; NULL = nothing known
    PRIMARY KEY (uid, seq)
) WITHOUT ROWID;
CREATE INDEX events_same ON events (uid, digest);
CREATE INDEX events_time ON events (at_s);
