package oidc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/jonboulle/clockwork"
)

const (
	cooldown     = 30 * time.Second // between two fetches
	firstRetries = 5 * time.Second  // likewise, while there are no keys at all
	freshFor     = 5 * time.Minute  // keys that are older are fetched again, beside the call
	staleFor     = 24 * time.Hour   // keys that are older are good no more
	unknownFor   = time.Minute      // a key id that was not there is not asked for again
	maxUnknown   = 1024             // of which so many are remembered
)

// errNoAnswer says that a token could not be checked, for want of keys. It says
// nothing against the token.
var errNoAnswer = errors.New("the keys of its issuer could not be had")

// ended is the end of a fetch that has ended.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// keySet is the keys of one issuer, as they were had last. Other libraries fetch
// them again for every token with a key id that they do not know (coreos/go-oidc
// pull request 482), and so let strangers have the issuer flooded. Safe for
// concurrent use.
type keySet struct {
	issuer string
	client *http.Client
	clock  clockwork.Clock
	log    *slog.Logger

	mu      sync.Mutex
	keys    []key // replaced and never changed
	edition int   // how often they were
	had     time.Time
	at      string // where they are; "": to be asked
	tried   time.Time
	failed  bool          // the last fetch
	under   chan struct{} // closed when the fetch under way ends; nil: none is
	unknown *simplelru.LRU[string, time.Time]
}

func newKeySet(issuer string, client *http.Client, clock clockwork.Clock, log *slog.Logger) *keySet {
	unknown, _ := simplelru.NewLRU[string, time.Time](maxUnknown, nil) // the size is above 0
	return &keySet{issuer: issuer, client: client, clock: clock, log: log, unknown: unknown}
}

// verify checks that a key of the issuer's has signed t. It waits only where no key
// fits and there may be newer ones.
func (s *keySet) verify(ctx context.Context, t *token) error {
	keys, edition := s.current()
	err := t.signedBy(keys)
	if err == nil {
		return nil
	}
	if newer := s.newer(t.kid, edition); newer != nil {
		select {
		case <-newer:
		case <-ctx.Done():
			return errNoAnswer
		}
		keys = s.settled(t.kid)
		err = t.signedBy(keys)
	}
	if err != nil && len(keys) == 0 {
		return errNoAnswer
	}
	return err
}

// current returns the keys as they are and which edition they are, and has those
// that are not fresh fetched again meanwhile.
func (s *keySet) current() ([]key, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if now.Sub(s.had) >= freshFor {
		s.beginLocked(now)
	}
	return s.goodLocked(now), s.edition
}

// newer returns the end of a fetch that may bring a key of that id, or, for tokens
// without, any, to who has seen that edition; nil if none is to be had now.
func (s *keySet) newer(kid string, seen int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.edition != seen { // they came since he looked
		return ended
	}
	if has(s.goodLocked(now), kid) {
		return nil // and the signature is of another
	}
	if until, absent := s.unknown.Get(kid); absent && now.Before(until) {
		return nil
	}
	s.beginLocked(now)
	return s.under
}

// beginLocked begins a fetch, unless one is under way or was not long ago.
func (s *keySet) beginLocked(now time.Time) {
	wait := cooldown
	if s.keys == nil {
		wait = firstRetries
	}
	if s.under == nil && now.Sub(s.tried) >= wait {
		s.tried, s.under = now, make(chan struct{})
		go s.fetch(s.at, s.under)
	}
}

func has(keys []key, kid string) bool {
	return kid != "" && slices.ContainsFunc(keys, func(k key) bool { return k.kid == kid })
}

// settled returns the keys after a fetch, and remembers a key id that is still not
// among them.
func (s *keySet) settled(kid string) []key {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	keys := s.goodLocked(now)
	if kid != "" && !s.failed && !has(keys, kid) {
		s.unknown.Add(kid, now.Add(unknownFor))
	}
	return keys
}

func (s *keySet) goodLocked(now time.Time) []key {
	if now.Sub(s.had) >= staleFor {
		return nil
	}
	return s.keys
}

// fetch has the keys anew. It is nobody's request: who began it may hang up while
// others wait.
func (s *keySet) fetch(at string, end chan struct{}) {
	defer close(end)
	keys, at, err := s.ask(context.Background(), at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under = nil
	was := s.failed
	s.failed = err != nil
	if err != nil {
		s.at = "" // it may have moved
		if !was {
			s.log.Warn("the keys of an issuer cannot be had; those that were had before are good for 24 h", "issuer", s.issuer, "keys", len(s.keys), "error", err)
		}
		return
	}
	if was || s.keys == nil {
		s.log.Info("the keys of an issuer were had", "issuer", s.issuer, "keys", len(keys))
	}
	s.keys, s.at, s.had = keys, at, s.clock.Now()
	s.edition++
}

// ask has the keys from where they are, which it asks for if it is not known.
func (s *keySet) ask(ctx context.Context, at string) (_ []key, _ string, err error) {
	if at == "" {
		if at, err = discover(ctx, s.client, s.issuer); err != nil {
			return nil, "", err
		}
	}
	b, err := get(ctx, s.client, at)
	if err != nil {
		return nil, "", err
	}
	keys, err := parseKeys(b)
	return keys, at, err
}
