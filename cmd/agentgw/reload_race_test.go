package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/internal/store"
)

// TestReloadsRace: files that come and go, bad ones among them, reloads that
// several operators ask for, and keys that are made and revoked, all at once and
// under calls. No call fails for it, and what is in force at the end is the last
// file and the last keys.
func TestReloadsRace(t *testing.T) {
	tenant := func(weight int) string {
		return fmt.Sprintf("{rps: 100000, burst: 100000, max_inflight: 0, weight: %d}", weight)
	}
	r := newReloading(t, tenant(1))
	others := []string{r.storedKey(store.Key{ID: "stays"}, nil)}
	deadline := time.Now().Add(time.Duration(rounds(1, 20)) * time.Second)
	var failed, calls, reloads atomic.Int64
	var all sync.WaitGroup
	until := func(do func(i int)) {
		all.Go(func() {
			for i := 0; time.Now().Before(deadline); i++ {
				do(i)
			}
		})
	}
	send := func(method, url, header, value, body string) int {
		request, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			return 0
		}
		request.Header.Set(header, value)
		res, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0
		}
		defer func() { _ = res.Body.Close() }()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	agents, operatorsURL := "http://"+r.server.agentsListener.Addr().String()+"/v1/act", "http://"+r.server.operatorsListener.Addr().String()
	for range 2 {
		until(func(int) {
			calls.Add(1)
			if status := send("POST", agents, "Agentgate-Key", r.key, `{"service":"tools","action":"get"}`); status != http.StatusOK {
				failed.Add(1)
				t.Errorf("a call: %d", status)
			}
		})
		until(func(int) {
			switch status := send("POST", operatorsURL+"/admin/v1/reload", "Authorization", operators, ""); status {
			case http.StatusOK:
				reloads.Add(1)
			case http.StatusUnprocessableEntity:
			default:
				t.Errorf("a reload: %d", status)
			}
		})
	}
	until(func(i int) { // one writer: an editor
		switch i % 5 {
		case 3:
			r.write("{rps: ten}")
		case 4:
			r.write("{rps: 5")
		default:
			r.write(tenant(i%900 + 2))
		}
		time.Sleep(time.Millisecond)
	})
	until(func(i int) {
		id := fmt.Sprintf("passing-%d", i)
		r.storedKey(store.Key{ID: id}, nil)
		if err := r.server.live.refresh(context.Background()); err != nil {
			t.Error(err)
		}
		if err := r.server.store.RevokeKey(context.Background(), id, time.Now()); err != nil {
			t.Error(err)
		}
	})
	until(func(int) { send("GET", operatorsURL+"/admin/v1/config", "Authorization", operators, "") })
	all.Wait()

	last := r.storedKey(store.Key{ID: "last"}, nil)
	r.write(tenant(1000))
	eventually(t, "the last file is in force, by itself", func() bool {
		c := r.config()
		return c.InForce && c.Failure == nil
	})
	for _, key := range append(others, last) {
		eventually(t, "the last keys are served", func() bool { return r.callAs(key, "get").StatusCode == http.StatusOK })
	}
	if n := reloads.Load(); calls.Load() == 0 || n == 0 {
		t.Errorf("%d calls and %d reloads: nothing raced", calls.Load(), n)
	}
	t.Logf("%d calls, %d failed, under %d reloads that were asked for", calls.Load(), failed.Load(), reloads.Load())
}
