-- The sandboxes of interpreters, which programs start and no controller knows: many programs write
-- this file, each only its own rows, but for those of programs that were killed.

CREATE TABLE runs (
    name TEXT PRIMARY KEY,
    parent TEXT,                   -- the run whose code asked for it; NULL = a program asked
    depth INTEGER NOT NULL,        -- of its recursive query; 0 = the program's own interpreter
    provider TEXT NOT NULL,
    native TEXT NOT NULL,          -- JSON: what else its provider must know to end it by its name
    program TEXT NOT NULL,         -- the file whose lock the program holds while it lives
    host TEXT NOT NULL,            -- where it runs: a lock says nothing of another machine's
    pid INTEGER NOT NULL,
    state TEXT NOT NULL,           -- of codes.STATES
    reason TEXT NOT NULL,
    created_at_s REAL NOT NULL,
    started_at_s REAL,
    ended_at_s REAL,
    usage TEXT                     -- JSON: of language models, by depth; NULL = not known
);
CREATE INDEX runs_open ON runs (program) WHERE ended_at_s IS NULL;
