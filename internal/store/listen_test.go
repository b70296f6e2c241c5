package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/pgtest"
	"agentgw/internal/store"
)

// listening has s listen and watch, with a poll that never comes, until the test ends.
// seen are the generations that it acted on, lost what it was told of the connection.
func listening(t *testing.T, s *store.Store) (seen <-chan int64, lost <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	generations, errs := make(chan int64, 1000), make(chan error, 1000)
	var both sync.WaitGroup
	clock := clockwork.NewRealClock()
	both.Go(func() { s.Listen(ctx, clock, func(err error) { errs <- err }) })
	both.Go(func() {
		s.Watch(ctx, clock, time.Hour, func(g int64) error { generations <- g; return nil }, func(err error) { t.Logf("watching: %v", err) })
	})
	t.Cleanup(func() { cancel(); both.Wait() })
	return generations, errs
}

// until waits for a generation to be acted on.
func until(t *testing.T, seen <-chan int64, want int64) {
	t.Helper()
	end := time.After(time.Minute)
	for {
		select {
		case g := <-seen:
			if g == want {
				return
			}
		case <-end:
			t.Fatalf("generation %d is not seen", want)
		}
	}
}

// TestChangesArePushed: what another process does is seen though nobody polls; what is
// not committed is not; and many changes at once are not as many looks.
func TestChangesArePushed(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, other := openPostgres(t, url), openPostgres(t, url)
	seen, _ := listening(t, s)
	until(t, seen, 0)
	eventually(t, "it listens", s.Pushes)
	if err := other.AddKey(t.Context(), store.Key{ID: "k"}); err != nil {
		t.Fatal(err)
	}
	until(t, seen, 1)
	if err := other.AddKey(t.Context(), store.Key{ID: "k"}); err == nil {
		t.Fatal("added twice")
	}
	const changes = 50
	for range changes {
		if err := other.RevokeKey(t.Context(), "k", time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, seen, 1+changes)
	if n := len(seen); n > 0 {
		t.Errorf("%d looks more", n)
	}
}

// TestAPushThatIsLost: a connection that dies is made anew, again and again, and what
// changed in between is seen then.
func TestAPushThatIsLost(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, other, db := openPostgres(t, url), openPostgres(t, url), look(t, url)
	seen, lost := listening(t, s)
	until(t, seen, 0)
	for i := range 3 {
		eventually(t, "it listens", s.Pushes)
		ended := 0
		if err := db.QueryRow(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND datname = current_database()`).Scan(&ended); err != nil || ended != 1 {
			t.Fatalf("%d connections listen, %v", ended, err)
		}
		if err := other.RevokeDelegations(t.Context(), store.Revocation{Kind: store.RevokedAgent, Name: "k", RevokedAt: time.Unix(int64(i)+1, 0)}); err != nil {
			t.Fatal(err)
		}
		until(t, seen, int64(i+1))
		if err := <-lost; err == nil {
			t.Error("it is not told of")
		}
		if err := <-lost; err != nil {
			t.Errorf("told twice: %v", err)
		}
	}
}

// TestAServerThatGoesTakesThePushAlong, and brings it back; of both the log hears once.
func TestAServerThatGoesTakesThePushAlong(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	url := server.Database(t)
	s := openPostgres(t, url)
	away := make(chan error, 100)
	s.AwayChanged = func(err error) { away <- err }
	seen, lost := listening(t, s)
	until(t, seen, 0)
	eventually(t, "it listens", s.Pushes)
	server.Stop()
	if err := <-lost; err == nil || s.Pushes() {
		t.Errorf("%v, and it says that it listens: %v", err, s.Pushes())
	}
	for range 3 {
		_, _ = s.Generation(t.Context())
	}
	if err := <-away; err == nil || !s.Away() {
		t.Errorf("%v, and it says that it is away: %v", err, s.Away())
	}
	server.Again(t)
	if err := <-lost; err != nil {
		t.Errorf("told twice: %v", err)
	}
	eventually(t, "it listens again", s.Pushes)
	eventually(t, "it is asked again", func() bool { _, err := s.Generation(t.Context()); return err == nil })
	if err := <-away; err != nil || s.Away() || len(away) > 0 {
		t.Errorf("%v, away %v, told %d times more", err, s.Away(), len(away))
	}
	if err := openPostgres(t, url).AddKey(t.Context(), store.Key{ID: "k"}); err != nil {
		t.Fatal(err)
	}
	until(t, seen, 1)
}

// TestAFileHasNoPush, and Listen of one ends.
func TestAFileHasNoPush(t *testing.T) {
	s := open(t, t.TempDir())
	s.Listen(t.Context(), clockwork.NewRealClock(), func(error) { t.Error("told of") })
	if s.Pushes() || s.Away() {
		t.Error("a file pushes, or is away")
	}
}
