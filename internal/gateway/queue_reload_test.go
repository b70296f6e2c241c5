package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
)

// TestLeavingAfterAReloadGivesAllBack: calls wait while a reload changes every rate and
// burst of theirs, and again, and then hang up: those that came before it as well as
// those that came after. What is left is as had they not come.
func TestLeavingAfterAReloadGivesAllBack(t *testing.T) {
	file := func(tenant, service string) string {
		return "tenants:\n  t: {" + tenant + ", max_inflight: 1}\nservices:\n" + serviceLine("tools", "rate_limit: {"+service+"},")
	}
	up := newHeldStreams()
	w := setup{registry: file("rps: 100, burst: 200", "rps: 10, burst: 50"), settings: func(s *config.Settings) {
		s.TenantQueue, s.TenantQueueWait = 10, time.Hour
	}}.world(t, up.serve, of("t", limited("k", 10, 50)))
	levels := func(key, tenant, service [2]int64) string {
		t.Helper()
		return fmt.Sprint(w.tokens(ratelimit.KindKey, "key:k", float64(key[0]), key[1]), w.tokens(ratelimit.KindTenant, "tenant:t", float64(tenant[0]), tenant[1]),
			w.tokens(ratelimit.KindService, ratelimit.ServiceBucket("k", "tools"), float64(service[0]), service[1]))
	}
	end := w.hold(up, "k", streamCall("tools", ""))
	var hangUps []context.CancelFunc
	wait := func() {
		n := w.waiting()
		ctx, cancel := context.WithCancel(t.Context())
		hangUps = append(hangUps, cancel)
		r := w.request(ctx, "k", plainCall("tools", ""))
		go func() {
			if res, err := w.server.Client().Do(r); err == nil {
				_ = res.Body.Close()
			}
		}()
		eventually(t, "it waits", func() bool { return w.waiting() == n+1 })
	}
	wait()
	wait()
	if got := levels([2]int64{10, 50}, [2]int64{100, 200}, [2]int64{10, 50}); got != "47 197 47" {
		t.Fatalf("one runs and two wait: %s", got)
	}
	reload := func(tenant, service string, rps float64, burst int) {
		key := of("t", limited("k", rps, burst))
		key.Digest, _ = identity.ParseKey(w.keys["k"])
		w.use(file(tenant, service), key)
	}
	reload("rps: 50, burst: 400", "rps: 5, burst: 60", 20, 100)
	wait()
	if got := levels([2]int64{20, 100}, [2]int64{50, 400}, [2]int64{5, 60}); got != "46 196 46" {
		t.Errorf("three wait, under other limits: %s", got)
	}
	w.clock.Advance(2 * time.Second)
	reload("rps: 7, burst: 500", "rps: 1, burst: 70", 1, 90)
	wait()
	if got := levels([2]int64{1, 90}, [2]int64{7, 500}, [2]int64{1, 70}); got != "85 295 55" {
		t.Errorf("four wait, after two seconds and under others again: %s", got)
	}
	for n, hangUp := range hangUps {
		hangUp()
		eventually(t, "it left", func() bool { return w.waiting() == int64(len(hangUps)-1-n) })
	}
	want := "89 299 59"
	eventually(t, "all is given back: "+want, func() bool { return levels([2]int64{1, 90}, [2]int64{7, 500}, [2]int64{1, 70}) == want })
	end()
	w.nothingIsLeft(t, "calls that left after a reload")
}
