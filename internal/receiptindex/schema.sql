-- How far each log was shipped: its entries before next are in the database.
CREATE TABLE IF NOT EXISTS receipt_logs (
  origin text PRIMARY KEY,
  next   bigint NOT NULL
);

-- Entries that are about calls, each once. Of a receipt the row that tells how it stands is
-- listed: its beginning until its end is there. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS receipt_rows (
  origin   text NOT NULL,
  entry    bigint NOT NULL,
  id       text NOT NULL,
  at       bigint NOT NULL,
  begins   boolean NOT NULL,
  listed   boolean NOT NULL,
  tenant   text NOT NULL,
  caller   text NOT NULL,
  service  text NOT NULL,
  decision text NOT NULL,
  code     text NOT NULL,
  ending   text NOT NULL,
  request  text NOT NULL,
  line     text NOT NULL,
  PRIMARY KEY (origin, entry)
);

CREATE INDEX IF NOT EXISTS receipt_rows_by_time ON receipt_rows (at, origin, entry) WHERE listed;
CREATE INDEX IF NOT EXISTS receipt_rows_of_tenant ON receipt_rows (tenant, at, origin, entry) WHERE listed;
CREATE INDEX IF NOT EXISTS receipt_rows_of_caller ON receipt_rows (caller, at, origin, entry) WHERE listed;
CREATE INDEX IF NOT EXISTS receipt_rows_of_request ON receipt_rows (request) WHERE listed;
CREATE INDEX IF NOT EXISTS receipt_rows_open ON receipt_rows (origin, id) WHERE begins AND listed;
