package receipts

import "time"

// Instant is a time that reports spell as records do, with six digits of a second.
type Instant struct{ time.Time }

// MarshalJSON returns it in that spelling.
func (i Instant) MarshalJSON() ([]byte, error) {
	return append(appendTime([]byte{'"'}, i.Time), '"'), nil
}
