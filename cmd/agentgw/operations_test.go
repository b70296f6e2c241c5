package main

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"agentgw/internal/receipts"
)

type tenantSeen struct {
	ID       string
	InFlight int64  `json:"in_flight"`
	Most     *int64 `json:"max_inflight"`
	Bucket   *struct {
		RPS              float64
		Burst, Remaining int64
	}
	Blocked bool
}

func (r *reloading) tenant(id string) (t tenantSeen) {
	r.t.Helper()
	status, body := r.operate("GET", "/admin/v1/tenants/"+id, operators)
	if status != http.StatusOK {
		r.t.Fatalf("%s: %d %s", id, status, body)
	}
	if err := json.Unmarshal([]byte(body), &t); err != nil {
		r.t.Fatal(err)
	}
	return t
}

// TestOperatorsSeeTenants: what is in flight and what is left, by full name.
func TestOperatorsSeeTenants(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10, max_inflight: 3}")
	r.admitted(2)
	r.call("hold")
	got := r.tenant("tenant:t")
	if got.ID != "tenant:t" || got.InFlight != 1 || got.Most == nil || *got.Most != 3 || got.Bucket == nil ||
		got.Bucket.RPS != 0.01 || got.Bucket.Burst != 10 || got.Bucket.Remaining != 7 || got.Blocked {
		t.Errorf("%+v", got)
	}
	var all struct{ Tenants []tenantSeen }
	_, body := r.operate("GET", "/admin/v1/tenants", operators)
	if err := json.Unmarshal([]byte(body), &all); err != nil || len(all.Tenants) != 1 || all.Tenants[0].ID != "tenant:t" {
		t.Errorf("%v %s", err, body)
	}
	if status, _ := r.operate("GET", "/admin/v1/tenants/tenant:nobody", operators); status != http.StatusNotFound {
		t.Errorf("a tenant that never called: %d", status)
	}
}

// TestOperatorsBlockATenant: its running calls end, visibly and with their
// reason in the receipt, its later ones are refused and cost nothing, and others
// go on; until it is unblocked.
func TestOperatorsBlockATenant(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10, max_inflight: 3}")
	res := r.call("hold")
	if status, body := r.operate("POST", "/admin/v1/tenants/tenant:t/block", operators); status != http.StatusOK ||
		body != `{"id":"tenant:t","blocked":true,"calls_ended":1}`+"\n" {
		t.Fatalf("%d %s", status, body)
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the call that was ended looks whole")
	}
	var ended *receipts.Record
	eventually(t, "the receipt of the ended call", func() bool {
		records, err := r.server.receipts.Find(receiptID.FindStringSubmatch(res.Header.Get("Agentgate-Receipt"))[1])
		if err != nil || len(records) != 2 {
			return false
		}
		ended = new(receipts.Record)
		return json.Unmarshal(records[1], ended) == nil
	})
	if ended.Ending != receipts.Blocked {
		t.Errorf("the call ended as %q", ended.Ending)
	}
	refused := r.call("get")
	if refused.StatusCode != http.StatusForbidden || refused.Header.Get("Agentgate-Code") != "tenant_blocked" {
		t.Errorf("while blocked: %s %v", refused.Status, refused.Header)
	}
	if got := r.tenant("tenant:t"); !got.Blocked || got.InFlight != 0 || got.Bucket.Remaining != 9 {
		t.Errorf("while blocked: %+v", got)
	}
	r.operate("POST", "/admin/v1/tenants/tenant:t/unblock", operators)
	if got := r.admitted(2); got != 2 || r.tenant("tenant:t").Blocked {
		t.Errorf("after unblocking %d of 2 admitted", got)
	}
	// One that has not called yet can be blocked too.
	r.operate("POST", "/admin/v1/tenants/human:u/block", operators)
	if !r.tenant("human:u").Blocked {
		t.Error("a tenant that has not called is not shown as blocked")
	}
}
