-- state.db: the truth. Every change is durable when its transaction ends (WAL, synchronous=FULL).
-- Plain types on purpose: nothing here needs an SQLite newer than 3.33.

-- One row: who we are, who may write, and how many wishes there have been.
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    store_id TEXT NOT NULL,        -- random; the owner tag on everything that we create
    epoch INTEGER NOT NULL,        -- rises with every opening; a writer of an older one is refused
    changes INTEGER NOT NULL,      -- resources.change comes from here; never decreases
    created_at_s REAL NOT NULL
);

CREATE TABLE resources (
    rid INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: runs point here
    uid TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    namespace TEXT NOT NULL DEFAULT 'default',
    generation INTEGER NOT NULL,
    version INTEGER NOT NULL,
    change INTEGER NOT NULL,
    created_at_s REAL NOT NULL,
    deleted_at_s REAL,             -- set = wanted gone
    labels TEXT NOT NULL,          -- JSON object
    annotations TEXT NOT NULL,     -- JSON object
    status TEXT NOT NULL,          -- JSON object, small; a spec can have megabytes and lives apart
    -- When the controller must look at it though nobody writes it: 0 = always, a later time = it is
    -- over and something is due then, NULL = it is over for good.
    wake_at_s REAL DEFAULT 0
);
-- A name is free again as soon as its resource is being deleted.
CREATE UNIQUE INDEX resources_living ON resources (kind, namespace, name) WHERE deleted_at_s IS NULL;
CREATE INDEX resources_change ON resources (change);
CREATE INDEX resources_awake ON resources (wake_at_s) WHERE wake_at_s IS NOT NULL;

CREATE TABLE specs (
    rid INTEGER PRIMARY KEY,
    spec TEXT NOT NULL
);

-- Objects that are gone, with their runs, results and metrics, which stay under the same rid until
-- retention takes them. What decides about work never reads this table; people's questions do.
CREATE TABLE gone (
    rid INTEGER PRIMARY KEY,       -- as it was in resources, which never gives it again
    uid TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    namespace TEXT NOT NULL,
    generation INTEGER NOT NULL,
    created_at_s REAL NOT NULL,
    gone_at_s REAL NOT NULL,       -- when nothing of it was left at any provider
    labels TEXT NOT NULL,          -- JSON object
    status TEXT NOT NULL,          -- JSON object, the last one
    bytes INTEGER NOT NULL,        -- about what it keeps here
    -- A name means the newest object that has it; an older one is shown as `NAME (deleted TIME)`.
    shown TEXT NOT NULL
);
CREATE INDEX gone_name ON gone (kind, namespace, name);
CREATE INDEX gone_time ON gone (gone_at_s);

-- Texts that many runs share: provider names, template hashes and why a run is where it is.
CREATE TABLE words (
    word_id INTEGER PRIMARY KEY,
    word TEXT NOT NULL UNIQUE
);

CREATE TABLE runs (
    run_id INTEGER PRIMARY KEY,
    rid INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),  -- position in codes.STATES
    provider INTEGER NOT NULL,     -- words
    template_hash INTEGER NOT NULL,-- words
    sandbox_open INTEGER NOT NULL,
    exit_code INTEGER,
    journal_offset INTEGER NOT NULL,
    created_at_s REAL NOT NULL,
    started_at_s REAL,
    ended_at_s REAL,
    name TEXT NOT NULL UNIQUE,
    sandbox TEXT,                  -- NULL = the same as name
    handle TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    usd_per_s REAL,                -- NULL = the price is not known
    placed INTEGER,                -- words: why it is at this provider; NULL = there was no choice
    put_aside INTEGER NOT NULL DEFAULT 0,  -- 1 = another attempt was asked for; never 0 again
    content INTEGER,               -- words: what the unit stood for; NULL = not known
    usd REAL,                      -- of budgets: the worst case while live, the charge once over
    resumed_step INTEGER,          -- of the checkpoint that it began from; NULL = from none
    saved_step INTEGER,            -- the highest of the checkpoints that it completed
    queued INTEGER,                -- words: what it takes of its queue; NULL = it is in none
    worth_s REAL,                  -- of one that took a result over: what that work had taken,
    worth_usd REAL,                -- and had cost; NULL = not known
    params_hash TEXT NOT NULL,
    wandb TEXT,                    -- the run at W&B that this is an attempt of; NULL = none
    hint TEXT,                     -- what its user can do about the message; NULL = nothing known
    params TEXT NOT NULL           -- last: the one that can be long
);
CREATE UNIQUE INDEX runs_attempt ON runs (rid, idx, attempt);
CREATE INDEX runs_held ON runs (rid) WHERE state <= 2 OR sandbox_open;

-- What ended runs are charged: outlives them and their objects, for budgets over a period.
CREATE TABLE ledger (
    day INTEGER NOT NULL,          -- since 1970, UTC
    namespace TEXT NOT NULL,
    labels TEXT NOT NULL,          -- JSON object, keys sorted: those of the object when it ended
    usd REAL NOT NULL,
    unpriced_s REAL NOT NULL,      -- seconds whose price nobody knew
    PRIMARY KEY (day, namespace, labels)
) WITHOUT ROWID;

-- Requests for new sandboxes within the last minute, where a Provider limits them: a restarted
-- controller counts on.
CREATE TABLE creates (
    provider TEXT NOT NULL,
    at_s REAL NOT NULL
);

CREATE TABLE results (
    run_id INTEGER PRIMARY KEY,
    result TEXT NOT NULL           -- canonical JSON object
);

CREATE TABLE metrics (
    run_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    step INTEGER NOT NULL,
    name TEXT NOT NULL,
    value REAL,                    -- NULL = not a number
    at_s REAL NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

-- Complete checkpoints, as the guests of runs saw them appear. One that is written anew takes the
-- place of the older one of that run.
CREATE TABLE checkpoints (
    run_id INTEGER NOT NULL,
    step INTEGER NOT NULL,
    path TEXT NOT NULL,            -- as the program knows it
    at_s REAL NOT NULL,
    bytes INTEGER NOT NULL,
    took_s REAL NOT NULL,          -- from its first file to its last
    PRIMARY KEY (run_id, step, path)
) WITHOUT ROWID;

-- What runs asked of endpoints, as their gateway counted it last: totals of each run.
CREATE TABLE calls (
    run_id INTEGER NOT NULL,
    endpoint TEXT NOT NULL,        -- its name, in the namespace of the run's object
    calls INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    fallbacks INTEGER NOT NULL,
    hits INTEGER NOT NULL,         -- answers that a cache gave
    refused INTEGER NOT NULL,      -- by a limit or a budget
    unpriced INTEGER NOT NULL,     -- calls of models of unknown price
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    usd REAL NOT NULL,
    waiting_ms_p50 REAL,           -- for a slot
    waiting_ms_p95 REAL,
    answer_ms_p50 REAL,
    answer_ms_p95 REAL,
    PRIMARY KEY (run_id, endpoint)
) WITHOUT ROWID;

-- The sums of all that endpoints were asked, also by runs that are gone.
CREATE TABLE asked (
    uid TEXT PRIMARY KEY,          -- of the Endpoint
    calls INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    fallbacks INTEGER NOT NULL,
    hits INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    usd REAL NOT NULL
) WITHOUT ROWID;

-- What succeeded, by its content, for units that are the same work. Goes with its owner; bounded by
-- base.CACHE_ROWS_MAX and CACHE_BYTES_MAX.
CREATE TABLE cache (
    entry INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of their coming; the lowest go first
    template_key TEXT NOT NULL,
    unit_key TEXT NOT NULL,
    result TEXT,                   -- canonical JSON object; NULL = it submitted none
    metrics TEXT NOT NULL,         -- JSON object: the last value of each
    run TEXT NOT NULL,             -- whose result it is, by name
    object TEXT NOT NULL,          -- kind/name of its object
    idx INTEGER NOT NULL,
    duration_s REAL,
    usd REAL,                      -- NULL = nobody knows
    ended_at_s REAL NOT NULL,
    bytes_so_far INTEGER NOT NULL, -- of this entry and all before it, also those that are gone
    -- The uid of the object that may take it as its own: the one that it came from, or its heir.
    owner TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX cache_keys ON cache (template_key, unit_key, owner);
CREATE INDEX cache_runs ON cache (run);
CREATE INDEX cache_owners ON cache (owner);

-- What people are to be told, each once for every sink. Written with the status that it tells of,
-- and taken away long after it is delivered or given up.
CREATE TABLE notices (
    nid INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order in which it happened
    id TEXT NOT NULL,
    sink TEXT NOT NULL,            -- JSON object; names Secrets, holds nothing of them
    uid TEXT NOT NULL,
    object TEXT NOT NULL,          -- kind/name
    namespace TEXT NOT NULL,
    event TEXT NOT NULL,
    body TEXT NOT NULL,            -- JSON object
    at_s REAL NOT NULL,
    deadline_s REAL NOT NULL,
    state TEXT NOT NULL,           -- Waiting, Delivered, Undelivered
    tries INTEGER NOT NULL,
    due_at_s REAL NOT NULL,        -- of the next try, while it waits
    message TEXT NOT NULL,         -- the id under which it is sent; empty until it is tried
    problem TEXT NOT NULL,
    ended_at_s REAL,
    UNIQUE (id, sink)
);
CREATE INDEX notices_waiting ON notices (nid) WHERE state = 'Waiting';
CREATE INDEX notices_uid ON notices (uid);
