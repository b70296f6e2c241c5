package receipts

import "fmt"

// Damage is a place where a log does not hold.
type Damage struct {
	Position
	Index uint64 `json:"index"`        // of the entry there, or of the next one
	ID    string `json:"id,omitempty"` // of the entry, where it can be read
	What  string `json:"what"`

	// signed says that something signed is there, or is named, which no write
	// that a crash has torn explains: these bytes are no torn tail.
	signed bool

	// newer says that a newer version of this program wrote it, which no start
	// takes for a torn tail either. To a verifier, which cannot check tags, it may
	// be one.
	newer bool
}

func (d *Damage) Error() string {
	at := fmt.Sprintf("%s: entry %d", d.Position, d.Index)
	if d.ID != "" {
		at += fmt.Sprintf(" (id %s)", d.ID)
	}
	return at + ": " + d.What
}
