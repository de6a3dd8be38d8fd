-- access/access.db: who may ask the server of a team, and who did. Written by `fleetctl token` and by
-- the server; the controller never reads it.

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,           -- public: the first part of the token, and its name in the audit
    user TEXT NOT NULL,            -- for people: whose it is
    role TEXT NOT NULL,            -- viewer, editor or admin
    namespace TEXT NOT NULL,       -- `*` = all, and what belongs to none
    digest TEXT NOT NULL,          -- SHA-256 of the secret part, which has 256 random bits
    created_at_s REAL NOT NULL,
    expires_at_s REAL,             -- NULL = never
    revoked_at_s REAL,             -- NULL = it holds
    used_at_s REAL                 -- the newest use, to a minute; NULL = none
);

-- One row an act. Only grows: triggers refuse all else.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_s REAL NOT NULL,
    user TEXT NOT NULL,
    token TEXT NOT NULL,           -- id; empty = nobody logged in, from this machine
    address TEXT NOT NULL,
    action TEXT NOT NULL,          -- such as apply, delete, logs
    object TEXT NOT NULL,          -- key, or keys with commas; empty = none
    namespace TEXT NOT NULL,
    code INTEGER NOT NULL          -- the exit code: 0 = done, 3 = refused
);
CREATE INDEX audit_time ON audit (at_s);
CREATE TRIGGER audit_stays BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'append only') END;
CREATE TRIGGER audit_is BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'append only') END;
