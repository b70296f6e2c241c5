package receipts

import "time"

// Room on the disk is had before a record is taken and not looked for when it is
// written: so a full disk is met by calls that have not been made yet, and the
// outcomes of those under way still have their place.

const (
	// reserveShare: one part in so many of the free space may be reserved ahead, so
	// that a small volume is not taken up by a file that is almost empty.
	reserveShare = 8
	// aheadAtLeast is how far ahead, if that share allows it, where the segment is about full.
	aheadAtLeast = 1 << 20
	// lowRoom is how much is left when more is asked for ahead.
	lowRoom = 256 << 10
	// healRoom is how much there has to be before a log that had none takes records
	// again: it would else stop again a moment later, and each time leave records that say so.
	healRoom = 64 << 10

	headerRoom  = 512      // bytes that a segment begins with
	firstRoom   = 64 << 10 // bytes that a log has to have room for to be begun
	frame       = 512      // bytes that a batch has beside its records: its line and its checkpoint's
	fixedRecord = 1200     // bytes that a record has at most beside its texts
	outcomeMore = 192      // bytes of texts that an outcome may have more than its intent: code, limit, ending
)

// space is the account of it. Log.mu guards it; all of it is of the segment that
// is being written.
type space struct {
	end      int64     // where the next batch begins, its checkpoint before it included
	reserved int64     // what the file may grow to for certain
	taken    int64     // bytes of records that are queued or being written, and of those that are owed
	short    int64     // bytes that somebody waits for,
	since    time.Time // and since when
	rolling  bool      // to the next segment, of which this is not known yet
}

// has reports whether n more bytes can be given.
func (s *space) has(n int64) bool {
	return !s.rolling && s.reserved-s.end-s.taken >= n
}

// ask notes that somebody waits for n bytes.
func (s *space) ask(n int64, now time.Time) {
	if s.short == 0 {
		s.since = now
	}
	s.short = max(s.short, n)
}

// wants is how many bytes more than are taken there should be: what somebody waits
// for, or what is good to have. 0 is none.
func (s *space) wants() int64 {
	if s.short == 0 && s.has(lowRoom) {
		return 0
	}
	return max(s.short, 1)
}

// costOf is the most that a record may take of a segment, alone in its batch.
func costOf(r *Record) int64 { return min(spelledAtMost(r), maxRecord+1) + frame }

// owedTo is the most that the record takes which ends the attempt of r.
func owedTo(r *Record) int64 { return min(spelledAtMost(r)+outcomeMore, maxRecord+1) + frame }

// spelledAtMost bounds the length of r's line, without spelling it.
func spelledAtMost(r *Record) int64 {
	n := fixedRecord
	for _, s := range [...]string{string(r.Kind), r.ID, r.Caller, r.Key, r.Tenant, r.Principal, r.Service, r.Action, r.Method, r.Decision,
		r.Code, r.Limit, string(r.Ending), r.RequestID, r.ClientAddr, r.Replica, r.VKey, r.Reason} {
		n += textAtMost(s)
	}
	for _, s := range r.Chain {
		n += textAtMost(s) + len(`"",`)
	}
	if p := r.Params; p != nil {
		n += textAtMost(p.Alg) + textAtMost(p.Hash)
	}
	if c := r.Recovery; c != nil {
		n += textAtMost(c.File) + textAtMost(c.SHA256)
	}
	if h := r.Heads; h != nil {
		n += textAtMost(h.Root)
	}
	if c := r.Pruned; c != nil {
		n += textAtMost(c.SHA256)
	}
	return int64(n)
}

// textAtMost bounds what a text takes between its quotes: six bytes for one at most.
func textAtMost(s string) int {
	if isPlain(s) {
		return len(s)
	}
	return 6 * len(s)
}

// toReserve is how many bytes to reserve for a segment of size bytes which has
// reserved so many, needs as many more as need behind its end, and is to be of
// about limit bytes, on a disk where so many are free. The second is the least
// that will do.
func toReserve(size, reserved, need, limit, free int64) (wish, least int64) {
	least = max(0, size+need-reserved)
	share := min(max(limit-size, aheadAtLeast), free/reserveShare)
	return max(least, size+share-reserved), least
}
