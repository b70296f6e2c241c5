package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/pgtest"
	"agentgw/internal/redistest"
	"agentgw/internal/store"
)

// eventually waits for what must come, on however slow a machine.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestConnectionsThatDie in the middle of changes: what was acknowledged is there, what failed is
// there whole or not at all, nobody is locked out, and the generation is the number of changes.
func TestConnectionsThatDie(t *testing.T) {
	url := newDatabase(t)
	s, again, db := openPostgres(t, url), openPostgres(t, url), look(t, url)
	var acknowledged sync.Map
	var did, failed atomic.Int64
	var writers sync.WaitGroup
	for w, s := range []*store.Store{s, s, again, again} {
		writers.Go(func() {
			for i := 0; did.Load() < 40 || failed.Load() < 5; i++ {
				id := fmt.Sprintf("k%d-%d", w, i)
				err := s.AddKey(t.Context(), store.Key{ID: id, Digest: [32]byte{byte(w), byte(i), byte(i >> 8)}})
				switch {
				case err == nil:
					did.Add(1)
					acknowledged.Store(id, true)
				case errors.Is(err, store.ErrAway):
					failed.Add(1)
				default:
					t.Errorf("%s: %v", id, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	killer, end := context.WithTimeout(t.Context(), 2*time.Minute)
	defer end()
	for running := true; running && killer.Err() == nil; {
		select {
		case <-done:
			running = false
		case <-time.After(50 * time.Millisecond):
			_, _ = db.ExecContext(killer, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'agentgw' AND xact_start IS NOT NULL AND datname = current_database()`)
		}
	}
	<-done
	keys, err := again.Keys(t.Context())
	for err != nil { // the last of the killed
		keys, err = again.Keys(t.Context())
	}
	there := map[string]bool{}
	for _, k := range keys {
		there[k.ID] = true
	}
	acknowledged.Range(func(id, _ any) bool {
		if !there[id.(string)] {
			t.Errorf("%s was acknowledged and is not there", id)
		}
		return true
	})
	if g, err := again.Generation(t.Context()); err != nil || g != int64(len(keys)) {
		t.Errorf("generation %d with %d keys, %v", g, len(keys), err)
	}
	t.Logf("%d acknowledged, %d failed, %d there", did.Load(), failed.Load(), len(keys))
}

// TestAHaltedWriterLosesTheLock: a process that stands still in the middle of a change, and whose
// connection lives, keeps the others waiting for seconds and not for ever.
func TestAHaltedWriterLosesTheLock(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := openPostgres(t, url)
	halted, err := look(t, url).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = halted.Rollback() }()
	for _, statement := range []string{store.OnlyWriter, `UPDATE meta SET generation = 99`} {
		if _, err := halted.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the other is out", func() bool {
		err := s.AddKey(t.Context(), store.Key{ID: "k"})
		if err != nil && !errors.Is(err, store.ErrAway) {
			t.Fatal(err)
		}
		return err == nil
	})
	if g, err := s.Generation(t.Context()); err != nil || g != 1 {
		t.Errorf("generation %d, %v: the halted one's change is there", g, err)
	}
}

// TestAServerThatHangs, or is down, is away for who asks, and there again by itself.
func TestAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := openPostgres(t, server.Database(t))
	for what, c := range map[string]struct{ away, back func() }{
		"halted": {func() { server.Halt(t) }, func() { server.Resume(t) }},
		"down":   {server.Stop, func() { server.Again(t) }},
	} {
		c.away()
		var asking sync.WaitGroup
		for _, ask := range []func() error{
			func() error { _, err := s.Generation(t.Context()); return err },
			func() error { return s.AddKey(t.Context(), store.Key{ID: what}) },
			func() error { return s.ClaimRenewal(t.Context(), "s", "", what, time.Unix(1, 0), time.Unix(2, 0)) },
			func() error { _, err := s.TakeLink(t.Context(), [32]byte{}, time.Unix(1, 0)); return err },
		} {
			asking.Go(func() {
				if err := ask(); !errors.Is(err, store.ErrAway) {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		asking.Wait()
		// Who asks and goes has not found the database away.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Keys(gone); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrAway) {
			t.Errorf("%s, asked by one who has gone: %v", what, err)
		}
		c.back()
		eventually(t, what+" and back", func() bool { _, err := s.Generation(t.Context()); return err == nil })
	}
}

// TestAWayThatIsSlow, 200 ms for each answer, is slow and nothing else; one that is cut off without
// a word is away, and there again when it is mended.
func TestAWayThatIsSlow(t *testing.T) {
	t.Parallel()
	at, err := url.Parse(newDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	way := redistest.Between(t, &redistest.Server{Addr: at.Host}) // which carries bytes, whosesoever
	at.Host = way.Addr
	openPostgres(t, at.String())
	way.Slow(200 * time.Millisecond)
	s := openPostgres(t, at.String()) // with no connection, and no statement that was seen before
	seen, _ := listening(t, s)
	until(t, seen, 0)
	eventually(t, "it listens", s.Pushes)
	ctx := t.Context()
	by := store.DataKey{Number: 1, Wrapped: []byte{1}}
	for what, err := range map[string]error{
		"a key": s.AddKey(ctx, store.Key{ID: "k"}), "a data key": s.AddDataKey(ctx, by),
		"a credential": s.PutCredential(ctx, store.Credential{Service: "s", Version: 1, Sealed: []byte{1}}, by),
		"a rotation":   s.RotateKey(ctx, "k", [32]byte{1}, time.Unix(1, 0), time.Unix(2, 0)),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	until(t, seen, 4)
	way.Cut()
	if err := s.AddKey(ctx, store.Key{ID: "l", Digest: [32]byte{2}}); !errors.Is(err, store.ErrAway) {
		t.Errorf("cut off: %v", err)
	}
	way.Mend()
	eventually(t, "it is there again", func() bool { _, err := s.Generation(ctx); return err == nil })
}

// TestNobodyWaitsForAServerThatHangs once a watcher has found that it does; and all is as before
// when it has found that it answers.
func TestNobodyWaitsForAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := openPostgres(t, server.Database(t))
	told := make(chan error, 100)
	s.AwayChanged = func(err error) { told <- err }
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		s.Watch(ctx, clockwork.NewRealClock(), 100*time.Millisecond, func(int64) error { return nil }, func(error) {})
	})
	defer watching.Wait()
	defer cancel()
	server.Halt(t)
	if err := <-told; !errors.Is(err, store.ErrAway) {
		t.Errorf("told %v", err)
	}
	const asked = 1000 // each would wait for seconds
	for range asked {
		if err := s.AddKey(t.Context(), store.Key{ID: "k"}); !errors.Is(err, store.ErrAway) {
			t.Fatal(err)
		}
	}
	server.Resume(t)
	if err := <-told; err != nil {
		t.Errorf("told twice: %v", err)
	}
	if err := s.AddKey(t.Context(), store.Key{ID: "k"}); err != nil {
		t.Error(err)
	}
}
