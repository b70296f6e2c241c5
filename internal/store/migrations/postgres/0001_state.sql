-- Names and texts are compared by their bytes, as in SQLite. What they cannot hold in
-- PostgreSQL is written otherwise: see pgtext.go.
CREATE TABLE meta (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation BIGINT NOT NULL
);
INSERT INTO meta (one, generation) VALUES (1, 0);

-- Lists are JSON arrays of strings. Times are nanoseconds since 1970, 0 for none.
CREATE TABLE keys (
    id                 TEXT COLLATE "C" PRIMARY KEY,
    digest             BYTEA NOT NULL UNIQUE CHECK (length(digest) = 32),
    services           TEXT NOT NULL,
    actions            TEXT NOT NULL,
    users              TEXT NOT NULL,
    tenant             TEXT NOT NULL,
    rps                DOUBLE PRECISION,
    burst              BIGINT,
    "user"             TEXT NOT NULL,
    space              TEXT NOT NULL,
    org                TEXT NOT NULL,
    created_at         BIGINT NOT NULL,
    not_before         BIGINT NOT NULL,
    not_after          BIGINT NOT NULL,
    revoked_at         BIGINT NOT NULL,
    -- The older of two secrets of a key, while it is rotated, and when it ends.
    retiring           BYTEA UNIQUE CHECK (length(retiring) = 32),
    retiring_not_after BIGINT NOT NULL,
    CHECK ((rps IS NULL) = (burst IS NULL))
);

-- When each secret was used last, those of keys that are not in this store too.
CREATE TABLE secret_uses (
    digest  BYTEA PRIMARY KEY CHECK (length(digest) = 32),
    used_at BIGINT NOT NULL
);

-- The host is the one that a credential may be sent to alone, and its sealed text is
-- bound to where it is not empty. The state is what became of it, for operators to see.
CREATE TABLE credentials (
    service    TEXT COLLATE "C" NOT NULL,
    "user"     TEXT COLLATE "C" NOT NULL,
    field      TEXT COLLATE "C" NOT NULL,
    tenant     TEXT COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    sealed     BYTEA NOT NULL,
    updated_at BIGINT NOT NULL,
    host       TEXT NOT NULL,
    state      TEXT NOT NULL,
    PRIMARY KEY (service, "user", field)
);

CREATE TABLE data_keys (
    tenant     TEXT COLLATE "C" NOT NULL,
    number     INTEGER NOT NULL CHECK (number BETWEEN 1 AND 255),
    wrapper    TEXT NOT NULL,
    wrapped    BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, number)
);

-- Who renews a token at this moment: at most one process, until it is done or its
-- time is over.
CREATE TABLE renewals (
    tenant  TEXT COLLATE "C" NOT NULL,
    service TEXT COLLATE "C" NOT NULL,
    "user"  TEXT COLLATE "C" NOT NULL,
    owner   TEXT NOT NULL,
    until   BIGINT NOT NULL,
    PRIMARY KEY (tenant, service, "user")
);

-- Links by which a person connects an account, each good once; by the SHA-256 of
-- the secret in them.
CREATE TABLE links (
    digest     BYTEA PRIMARY KEY CHECK (length(digest) = 32),
    service    TEXT NOT NULL,
    "user"     TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- Keys that the salts of receipts come from. A removed one keeps its row, without the
-- key, so that its receipts are known to be closed for good and not to be of elsewhere.
-- rowid is the order in which they were made, as in SQLite, where each table has one.
CREATE TABLE params_keys (
    rowid      BIGINT GENERATED ALWAYS AS IDENTITY,
    id         TEXT COLLATE "C" PRIMARY KEY,
    tenant     TEXT COLLATE "C" NOT NULL,
    wrapper    TEXT NOT NULL,
    wrapped    BYTEA,
    created_at BIGINT NOT NULL,
    removed_at BIGINT NOT NULL,
    CHECK ((wrapped IS NULL) = (removed_at <> 0))
);
CREATE UNIQUE INDEX params_keys_in_use ON params_keys (tenant) WHERE removed_at = 0;

-- Keys that delegations are signed with, wrapped; the newest signs, the one before it
-- is still good to verify.
CREATE TABLE delegation_roots (
    rowid      BIGINT GENERATED ALWAYS AS IDENTITY,
    id         TEXT COLLATE "C" PRIMARY KEY,
    wrapper    TEXT NOT NULL,
    wrapped    BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);

-- What was taken back of delegations: a token by its id, or all that an agent or a user
-- had at that time.
CREATE TABLE revocations (
    kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('token', 'agent', 'user')),
    name       TEXT COLLATE "C" NOT NULL,
    revoked_at BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);
