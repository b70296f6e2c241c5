CREATE TABLE meta (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL
) STRICT;
INSERT INTO meta (one, generation) VALUES (1, 0);

-- Lists are JSON arrays of strings. Times are nanoseconds since 1970, 0 for none.
CREATE TABLE keys (
    id         TEXT PRIMARY KEY NOT NULL,
    digest     BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    services   TEXT NOT NULL,
    actions    TEXT NOT NULL,
    users      TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    rps        REAL,
    burst      INTEGER,
    user       TEXT NOT NULL,
    space      TEXT NOT NULL,
    org        TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    not_after  INTEGER NOT NULL,
    revoked_at INTEGER NOT NULL,
    CHECK ((rps IS NULL) = (burst IS NULL))
) STRICT;

CREATE TABLE credentials (
    tenant     TEXT NOT NULL,
    service    TEXT NOT NULL,
    user       TEXT NOT NULL,
    field      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    sealed     BLOB NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, service, user, field)
) STRICT;

CREATE TABLE data_keys (
    tenant     TEXT NOT NULL,
    number     INTEGER NOT NULL CHECK (number BETWEEN 1 AND 255),
    wrapper    TEXT NOT NULL,
    wrapped    BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, number)
) STRICT;
