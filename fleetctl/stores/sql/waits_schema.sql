-- access/waits.db: the waits of agents that outlive their request, and the server that began them.
-- Written by `fleetctl mcp`; the controller never reads it.

CREATE TABLE waits (
    digest TEXT PRIMARY KEY,       -- SHA-256 of the handle, which has 256 random bits
    owner TEXT NOT NULL,           -- the user and the token that began it, and no other may see it
    request TEXT NOT NULL,         -- JSON: what is waited for, with the uids of the objects
    created_at_s REAL NOT NULL,
    expires_at_s REAL NOT NULL,    -- the row goes some time after this
    until_s REAL,                  -- the end of the wait, met or not; NULL = the row's own
    updated_at_s REAL NOT NULL,    -- when state or message changed
    state TEXT NOT NULL,           -- working, completed or cancelled
    message TEXT NOT NULL,         -- for people and models: how far it is, and why not further
    reply TEXT                     -- JSON of the reply; NULL = not completed
);
CREATE INDEX waits_owner ON waits (owner, state);
