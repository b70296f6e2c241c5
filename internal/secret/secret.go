// Package secret keeps a secret from being printed by accident.
//
// A Text prints as [redacted] in every way in which Go can print, log or
// marshal a value; the one way to its bytes is Reveal, so that a search for
// that word lists every place where a secret leaves its wrapper. It does not
// protect against code that means to leak, nor wipe memory.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// Text is a secret string. The zero value is the empty secret, which equals
// nothing. It may be copied and used from many goroutines.
type Text struct {
	// A pointer, not a string: a printer that reaches unexported fields by
	// reflection (%+v of a struct that holds a Text in an unexported field
	// calls no method) then shows an address and not the bytes.
	text *string
}

// New wraps s.
func New(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{text: &s}
}

// Reveal returns the secret itself. The caller answers for where it goes.
func (t Text) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// Empty reports whether there is no secret.
func (t Text) Empty() bool { return t.text == nil }

// Equal reports whether other is the secret, in a time that tells nothing of
// either: digests are compared, so that not even the length shows. The empty
// secret equals nothing, the empty string included.
func (t Text) Equal(other string) bool {
	a, b := sha256.Sum256([]byte(t.Reveal())), sha256.Sum256([]byte(other))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && !t.Empty()
}

// String returns [redacted].
func (Text) String() string { return redacted }

// GoString returns [redacted].
func (Text) GoString() string { return redacted }

// Format prints [redacted] for every verb.
func (Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON returns "[redacted]".
func (Text) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns [redacted].
func (Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns [redacted].
func (Text) LogValue() slog.Value { return slog.StringValue(redacted) }
