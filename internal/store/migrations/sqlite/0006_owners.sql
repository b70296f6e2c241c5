-- Whose key a credential is sealed under may change while it stays the same one: what
-- it is of is its service, user and field alone.
CREATE UNIQUE INDEX credentials_places ON credentials (service, user, field);
