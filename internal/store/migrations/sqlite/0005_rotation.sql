-- The older of two secrets of a key, while it is rotated, and when it ends.
ALTER TABLE keys ADD COLUMN retiring BLOB CHECK (length(retiring) = 32);
ALTER TABLE keys ADD COLUMN retiring_not_after INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX keys_retiring ON keys (retiring) WHERE retiring IS NOT NULL;

-- When each secret was used last, those of keys that are not in this store too.
CREATE TABLE secret_uses (
    digest  BLOB PRIMARY KEY NOT NULL CHECK (length(digest) = 32),
    used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
