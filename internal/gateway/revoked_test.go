package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// slow is an upstream with three answers that are not over until then: a stream, a
// body of a known length, and one that does not begin.
func slow(then <-chan struct{}) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		half := strings.Repeat("x", 100_000) // more than a server keeps back
		switch r.URL.Path {
		case "/stream":
			rw.Header().Set("Content-Type", "text/event-stream")
			send(rw, event)
		case "/get/part":
			rw.Header().Set("Content-Length", "200000")
			send(rw, half)
		}
		select {
		case <-then:
		case <-r.Context().Done():
			return
		}
		if r.URL.Path == "/get/part" {
			send(rw, half)
		}
	}
}

// underWay begins the calls of slow with a key.
func (w *world) underWay(key string) (calls []*open) {
	w.t.Helper()
	for _, body := range []length{action("stream", "{}"), action("get", `{"id":"part"}`), action("get", `{"id":"none"}`)} {
		call, err := newCaller(w.server.URL, key).start(body)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(call.cancel)
		calls = append(calls, call)
	}
	return calls
}

// TestCallsEndWithTheirKey: whatever takes a key away ends what runs with it, a
// stream, an answer of a known length and a call whose service has not answered, of
// that key alone; and what leaves it in force ends nothing.
func TestCallsEndWithTheirKey(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	spare, spareDigest := identity.NewKey()
	for _, c := range []struct {
		name string
		old  bool // the calls come with the older of two secrets
		make func(k *identity.Key)
		do   func(w *world, k, other *identity.Key)
		ends bool
	}{
		{name: "revoked", do: func(w *world, _, other *identity.Key) { w.use(worldRegistry, other) }, ends: true},
		{name: "given another secret", do: func(w *world, k, other *identity.Key) {
			k.Digest, k.Retiring = spareDigest, nil
			w.use(worldRegistry, k, other)
		}, ends: true},
		{name: "gone, and its secret another key's", do: func(w *world, k, other *identity.Key) {
			renamed := *k
			renamed.ID = "renamed"
			w.use(worldRegistry, &renamed, other)
		}, ends: true},
		{name: "expired", make: func(k *identity.Key) { k.NotAfter = began.Add(10 * time.Second) },
			do: func(w *world, _, _ *identity.Key) { w.clock.Advance(10 * time.Second) }, ends: true},
		{name: "given an end that comes", do: func(w *world, k, other *identity.Key) {
			k.NotAfter = began.Add(10 * time.Second)
			w.use(worldRegistry, k, other)
			w.clock.Advance(10 * time.Second)
		}, ends: true},
		{name: "given a beginning", do: func(w *world, k, other *identity.Key) {
			k.NotBefore = began.Add(10 * time.Second)
			w.use(worldRegistry, k, other)
		}, ends: true},
		{name: "the older secret's end", old: true, do: func(w *world, _, _ *identity.Key) { w.clock.Advance(20 * time.Second) }, ends: true},
		{name: "the older secret taken away", old: true, do: func(w *world, k, other *identity.Key) {
			k.Retiring = nil
			w.use(worldRegistry, k, other)
		}, ends: true},

		{name: "not quite expired", make: func(k *identity.Key) { k.NotAfter = began.Add(10 * time.Second) },
			do: func(w *world, _, _ *identity.Key) { w.clock.Advance(10*time.Second - 1) }},
		{name: "given more time", make: func(k *identity.Key) { k.NotAfter = began.Add(10 * time.Second) }, do: func(w *world, k, other *identity.Key) {
			k.NotAfter = began.Add(time.Hour)
			w.use(worldRegistry, k, other)
			w.clock.Advance(20 * time.Second)
		}},
		{name: "given no end", make: func(k *identity.Key) { k.NotAfter = began.Add(10 * time.Second) }, do: func(w *world, k, other *identity.Key) {
			k.NotAfter = time.Time{}
			w.use(worldRegistry, k, other)
			w.clock.Advance(20 * time.Second)
		}},
		{name: "left, with less scope and another tenant", do: func(w *world, k, other *identity.Key) {
			k.Services, k.Users, k.Tenant = []string{"slow"}, []string{"u"}, "wide"
			w.use(worldRegistry, k, other)
		}},
		{name: "rotated", do: func(w *world, k, other *identity.Key) {
			k.Digest, k.Retiring = spareDigest, &identity.Retiring{Digest: k.Digest, NotAfter: began.Add(10 * time.Second)}
			w.use(worldRegistry, k, other)
			w.clock.Advance(10*time.Second - 1)
		}},
		{name: "the older secret's end, for the newer", do: func(w *world, _, _ *identity.Key) { w.clock.Advance(20 * time.Second) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, other := everything("k"), everything("other")
			k.Retiring = &identity.Retiring{Digest: spareDigest, NotAfter: began.Add(20 * time.Second)}
			if c.make != nil {
				c.make(k)
			}
			then := make(chan struct{})
			w := newWorld(t, slow(then), k, other)
			w.settings.ClientStall = 0 // the clock moves, and may while a write has not quite ended
			key := w.keys["k"]
			if c.old {
				key = spare.Reveal()
			}
			mine, others := w.underWay(key), w.underWay(w.keys["other"])
			eventually(t, "all are at the upstream", func() bool { return w.upstreamRequests() == 6 })
			for _, call := range append(mine[:2:2], others[:2]...) {
				<-call.done
			}

			c.do(w, k, other)

			if !c.ends {
				close(then)
				for i, call := range append(mine, others...) {
					if <-call.done; call.err != nil || call.StatusCode != 200 {
						t.Fatalf("call %d: %+v, %v", i, call.Response, call.err)
					}
					if _, err := io.ReadAll(call.Body); err != nil {
						t.Errorf("call %d was broken off: %v", i, err)
					}
				}
				return
			}
			for _, call := range mine[:2] {
				if _, err := io.ReadAll(call.Body); !cut(err) {
					t.Errorf("an answer ended with %v; it must look cut", err)
				}
			}
			if <-mine[2].done; mine[2].err != nil || mine[2].StatusCode != 401 || mine[2].Header.Get("Agentgate-Code") != "unauthenticated" || mine[2].Header.Get("X-Should-Retry") != "false" {
				t.Errorf("before its answer: %+v, %v", mine[2].Response, mine[2].err)
			}
			eventually(t, "its slots are free", func() bool { return w.inFlight("key:k") == 0 })
			if n := w.inFlight("key:other"); n != 3 {
				t.Errorf("%d of the other's calls are in flight", n)
			}
			ended := 0
			for _, r := range w.ledger.all() {
				if r.Kind == receipts.KindOutcome {
					ended++
					if r.Ending != receipts.Revoked || r.Key != "k" || (r.Code == "unauthenticated") != (r.Out == 0) {
						t.Errorf("%+v", r)
					}
				}
			}
			if ended != 3 {
				t.Errorf("%d outcomes", ended)
			}
		})
	}
}

// TestAKeyThatIsGoneWhenItsCallReachesTheService: between the last look at the key
// and the call's place among those under way there is a moment; a change in it is
// seen.
func TestAKeyThatIsGoneWhenItsCallReachesTheService(t *testing.T) {
	k := everything("k")
	w := newWorld(t, hello, k)
	w.ledger.at = func(r *receipts.Record) {
		if r.Kind == receipts.KindIntent {
			w.use(worldRegistry)
		}
	}
	w.act("k", plainCall("tools", "")).want(t, "the key went while the intent was written", 401, "unauthenticated", "")
	if r := w.lastClosing(); r.Kind != receipts.KindOutcome || r.Ending != receipts.Revoked {
		t.Errorf("%+v", r)
	}
	if n := w.upstreamRequests(); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
}
