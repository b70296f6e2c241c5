-- The host that a credential may be sent to alone, and its sealed text is bound to
-- where it is not empty. The state is what became of it, for operators to see.
ALTER TABLE credentials ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE credentials ADD COLUMN state TEXT NOT NULL DEFAULT '';

-- Who renews a token at this moment: at most one process, until it is done or its
-- time is over.
CREATE TABLE renewals (
    tenant  TEXT NOT NULL,
    service TEXT NOT NULL,
    user    TEXT NOT NULL,
    owner   TEXT NOT NULL,
    until   INTEGER NOT NULL,
    PRIMARY KEY (tenant, service, user)
) STRICT;

-- Links by which a person connects an account, each good once; by the SHA-256 of
-- the secret in them.
CREATE TABLE links (
    digest     BLOB PRIMARY KEY NOT NULL CHECK (length(digest) = 32),
    service    TEXT NOT NULL,
    user       TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
