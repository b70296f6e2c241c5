-- Keys that delegations are signed with, wrapped; the newest signs, the one before it
-- is still good to verify.
CREATE TABLE delegation_roots (
    id         TEXT PRIMARY KEY NOT NULL,
    wrapper    TEXT NOT NULL,
    wrapped    BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- What was taken back of delegations: a token by its id, or all that an agent or a user
-- had at that time.
CREATE TABLE revocations (
    kind       TEXT NOT NULL CHECK (kind IN ('token', 'agent', 'user')),
    name       TEXT NOT NULL,
    revoked_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;
