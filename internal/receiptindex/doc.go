// Package receiptindex keeps a copy of a fleet's receipts in PostgreSQL, so that they are
// listed as if they were of one log.
//
// Each replica ships the entries of its own log, in their order, from the segments on disk: a
// call never waits for it, and the log needs no room for what is not shipped. How far
// a log was shipped stands in the database beside the rows and changes with them in one transaction,
// so that an entry is there once: after a restart, an outage, a commit of which the answer was lost,
// or a database that was restored from a backup, shipping goes on from where the database says.
//
// The rows prove nothing. Who can write the database can alter them; what is proven is what
// the logs hold (package receipts). An entry is in the database some time after it is in
// the log, or never, where its replica never runs again.
package receiptindex
