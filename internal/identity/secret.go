package identity

import (
	"sync/atomic"
	"time"
)

// Secret is a text by which a key is known, as its digest. A key has one, and
// while it is rotated two, which are one caller: they share its scope, its limits
// and its tenant. A Secret comes out of a Directory, or from NewCaller, and must not be
// changed.
type Secret struct {
	Key    *Key
	Digest [32]byte // SHA-256 of the whole text

	end  time.Time     // of the retiring one; zero: that of the key
	used *atomic.Int64 // when it came last; nil: nobody tracks it
}

// ValidAt reports whether the secret's key is in its time at now, and the secret is.
func (s *Secret) ValidAt(now time.Time) bool {
	return s.Key.ValidAt(now) && (s.end.IsZero() || now.Before(s.end))
}

// End is the first instant at which the secret is no longer valid; zero: it has none.
func (s *Secret) End() time.Time {
	if k := s.Key.NotAfter; s.end.IsZero() || !k.IsZero() && k.Before(s.end) {
		return k
	}
	return s.end
}

// Retiring is the older of two secrets of a key.
type Retiring struct {
	Digest   [32]byte
	NotAfter time.Time // the first instant at which it is no longer valid; the zero time is long past
}

// secrets are those of k, the newest first.
func (k *Key) secrets() []*Secret {
	list := []*Secret{{Key: k, Digest: k.Digest}}
	if k.Retiring != nil {
		end := k.Retiring.NotAfter
		if end.IsZero() { // as a Secret's it would be none
			end = time.Unix(0, 0)
		}
		list = append(list, &Secret{Key: k, Digest: k.Retiring.Digest, end: end})
	}
	return list
}
