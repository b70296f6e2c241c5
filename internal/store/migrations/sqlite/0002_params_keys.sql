-- Keys that the salts of receipts come from. A removed one keeps its row, without the
-- key, so that its receipts are known to be closed for good and not to be of elsewhere.
CREATE TABLE params_keys (
    id         TEXT PRIMARY KEY NOT NULL,
    tenant     TEXT NOT NULL,
    wrapper    TEXT NOT NULL,
    wrapped    BLOB,
    created_at INTEGER NOT NULL,
    removed_at INTEGER NOT NULL,
    CHECK ((wrapped IS NULL) = (removed_at <> 0))
) STRICT;
CREATE UNIQUE INDEX params_keys_in_use ON params_keys (tenant) WHERE removed_at = 0;
