package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// TestOperatorsDrainAGateway: what runs finishes, who waits and who comes is refused,
// and the process goes on, to be asked again and to be stopped.
func TestOperatorsDrainAGateway(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10, max_inflight: 1}")
	r.settings = "tenant_queue: 1, tenant_queue_wait: 1m"
	r.reload("{rps: 0.01, burst: 10, max_inflight: 1}")
	runs := r.call("hold")
	waiting := make(chan *http.Response, 1)
	go func() { waiting <- r.call("get") }()
	eventually(t, "one waits", func() bool { return r.tenant("tenant:t").Queued == 1 })

	drain := func(finish int) {
		t.Helper()
		want := fmt.Sprintf(`{"draining":true,"streams_to_end":0,"calls_to_finish":%d}`+"\n", finish)
		if status, body := r.operate("POST", "/admin/v1/drain", operators); status != http.StatusOK || body != want {
			t.Errorf("%d %s; want %s", status, body, want)
		}
	}
	drain(1)
	for who, res := range map[string]*http.Response{"who waits": <-waiting, "who comes": r.call("get")} {
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Agentgate-Code") != "draining" {
			t.Errorf("%s: %s %v", who, res.Status, res.Header)
		}
	}
	if status, body := r.operate("GET", "/readyz", ""); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if got := r.tenant("tenant:t"); got.InFlight != 1 || got.Queued != 0 || got.Bucket.Remaining != 9 {
		t.Errorf("while draining: %+v", got)
	}
	close(r.hold)
	if body, err := io.ReadAll(runs.Body); err != nil || string(body) != "begun" {
		t.Errorf("what ran: %q, %v", body, err)
	}
	eventually(t, "nothing runs", func() bool { return r.tenant("tenant:t").InFlight == 0 })
	drain(0)
	r.server.stop(context.Background())
}
