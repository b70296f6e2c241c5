package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

type receiptsSeen struct {
	Receipts []json.RawMessage
	Next     string
}

func (r *reloading) receipts(query string) (page receiptsSeen) {
	r.t.Helper()
	status, body := r.operate("GET", "/admin/v1/receipts?"+query, operators)
	if status != http.StatusOK {
		r.t.Fatalf("%s: %d %s", query, status, body)
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		r.t.Fatalf("%s: %v: %s", query, err, body)
	}
	return page
}

// TestOperatorsListReceipts: what the API lists is what stands in the log, byte for
// byte, newest or oldest first, narrowed, and page by page.
func TestOperatorsListReceipts(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 5, max_inflight: 3}")
	r.admitted(5)
	for range 3 {
		r.call("hold") // refused: the tenant's bucket is empty
	}
	var stored, refused []string
	err := receipts.Scan(filepath.Join(r.server.settings.DataDir, "receipts"), func(s receipts.Stored) error {
		if s.Record.Kind == receipts.KindOutcome || s.Record.Kind == receipts.KindRefusal {
			stored = append(stored, string(s.Line))
		}
		if s.Record.Decision == receipts.Refused {
			refused = append(refused, string(s.Line))
		}
		return nil
	})
	if err != nil || len(stored) != 8 || len(refused) != 3 {
		t.Fatalf("%d receipts, %d of them refused: %v", len(stored), len(refused), err)
	}
	backwards := func(list []string) []string {
		list = slices.Clone(list)
		slices.Reverse(list)
		return list
	}
	for query, want := range map[string][]string{
		"":                                   backwards(stored),
		"order=oldest":                       stored,
		"decision=refused":                   backwards(refused),
		"code=rate_limited&order=oldest":     refused,
		"tenant=t&service=tools&key=k":       backwards(stored),
		"tenant=tenant:t&code=complete":      backwards(stored[:5]),
		"tenant=other":                       nil,
		"from=2001-01-01&to=2001-01-02":      nil,
		"from=2001-01-01T00:00:00Z":          backwards(stored),
		"code=running":                       nil,
		"key=k&decision=allowed&code=budget": nil,
	} {
		for _, limit := range []int{1, 3, 100} {
			var got []string
			for next := ""; ; {
				page := r.receipts(strings.TrimPrefix(fmt.Sprintf("%s&limit=%d%s", query, limit, next), "&"))
				for _, line := range page.Receipts {
					got = append(got, string(line))
				}
				if len(page.Receipts) > limit || len(got) > len(stored) {
					t.Fatalf("%q: a page of %d", query, len(page.Receipts))
				}
				if page.Next == "" {
					break
				}
				next = "&cursor=" + page.Next
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, %d a page: %d receipts, want %d:\n%s", query, limit, len(got), len(want), strings.Join(got, "\n"))
			}
		}
	}
}

// TestOperatorsListNoOtherReceiptsThanTheyMean: a parameter that is wrong is named,
// and nothing is listed.
func TestOperatorsListNoOtherReceiptsThanTheyMean(t *testing.T) {
	r := newReloading(t, "{rps: 10, burst: 10, max_inflight: 3}")
	r.admitted(1)
	for query, name := range map[string]string{
		"decision=maybe": "decision", "code=scope_denyed": "code", "from=yesterday": "from", "to=12": "to", "order=up": "order", "limit=0": "limit", "limit=1001": "limit",
		"limit=x": "limit", "cursor=0": "cursor", "cursor=-1": "cursor", "cursor=9007199254740993": "cursor", "tenant=": "tenant", "key=a&key=b": "key", "tennant=acme": "tennant",
		"from=2026-01-02&to=2026-01-02": "to", "service=a;b": "",
	} {
		status, body := r.operate("GET", "/admin/v1/receipts?"+query, operators)
		var p struct {
			Code       string
			Parameters []struct{ Name, What string }
		}
		if err := json.Unmarshal([]byte(body), &p); err != nil || status != http.StatusBadRequest || p.Code != "bad_request" || len(p.Parameters) != 1 || p.Parameters[0].Name != name || p.Parameters[0].What == "" {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	if _, body := r.operate("GET", "/admin/v1/receipts?code=scope_denyed", operators); !strings.Contains(body, "did you mean scope_denied?") {
		t.Errorf("no hint: %s", body)
	}
	if status, body := r.operate("GET", "/admin/v1/receipts", ""); status != http.StatusUnauthorized || strings.Contains(body, "kind") {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, _ := r.operate("POST", "/admin/v1/receipts", operators); status != http.StatusNotFound {
		t.Errorf("POST: %d", status)
	}
}
