package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"agentgw/internal/admin"
	"agentgw/internal/config"
	"agentgw/internal/pgtest"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/secret"
)

// lister is a gateway of two, whose receipts both list.
type lister struct {
	t    *testing.T
	s    *server
	data string
	key  string
}

// vaultKeyOfTests is one that was drawn.
const vaultKeyOfTests = "8d969eef6ecad3c29a3a629280e686cf0c3f5d5a86aff3ca12020c923adc6c92"

func newLister(t *testing.T, url, upstream string) *lister {
	t.Helper()
	folder := t.TempDir()
	text := fmt.Sprintf("version: 1\nservices:\n  tools:\n    base_url: %s\n    allow_private: true\n    actions:\n      get: {method: GET, path: /x}\n", upstream)
	snapshot, err := registry.Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse([]string{"--data-dir", filepath.Join(folder, "data"), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load(flags, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	settings.DatabaseURL, settings.VaultKey = secret.New(url), secret.New(vaultKeyOfTests)
	s, err := start(settings, snapshot, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l := &lister{t, s, settings.DataDir, ""}
	if l.key, err = (operations{s}).CreateKey(t.Context(), admin.NewKey{ID: strings.ToLower(s.replica), Services: []string{"*"}, Users: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	return l
}

// call makes a call, and returns its receipt.
func (l *lister) call() string {
	l.t.Helper()
	r, err := http.NewRequest("POST", "http://"+l.s.agentsListener.Addr().String()+"/v1/act", strings.NewReader(`{"service":"tools","action":"get"}`))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		l.t.Fatalf("a call: %s", res.Status)
	}
	return receiptID.FindStringSubmatch(res.Header.Get("Agentgate-Receipt"))[1]
}

// listed is what GET /admin/v1/receipts says.
type listed struct {
	Receipts []struct{ ID string }
	Next, Of string
}

func (l *lister) get(status int, path string) (text string) {
	l.t.Helper()
	r, err := http.NewRequest("GET", "http://"+l.s.operatorsListener.Addr().String()+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.s.adminToken.Reveal())
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		l.t.Fatalf("%s: %s, want %d: %s (%v)", path, res.Status, status, body, err)
	}
	return string(body)
}

func (l *lister) list(query string) (page listed) {
	l.t.Helper()
	if err := json.Unmarshal([]byte(l.get(http.StatusOK, "/admin/v1/receipts?limit=5&order=oldest"+query)), &page); err != nil {
		l.t.Fatal(err)
	}
	return page
}

// TestReceiptsOfAllReplicasAreListed: by each of them and by the command, page by page; with
// the database away calls go on and a replica lists its own; what came meanwhile is there when
// the database is back, and the end of a replica that was stopped too.
func TestReceiptsOfAllReplicasAreListed(t *testing.T) {
	database := pgtest.Start(t)
	url := database.Database(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }))
	defer upstream.Close()
	one, two := newLister(t, url, upstream.URL), newLister(t, url, upstream.URL)
	defer one.s.stop(context.Background())
	var ids []string
	for range 4 {
		ids = append(ids, one.call(), two.call())
	}
	all := func(by *lister) (got []string) {
		next := ""
		for range 10 {
			page := by.list(next)
			if page.Of != "fleet" {
				t.Fatalf("of %q", page.Of)
			}
			for _, r := range page.Receipts {
				got = append(got, r.ID)
			}
			if page.Next == "" {
				break
			}
			next = "&cursor=" + page.Next
		}
		return got
	}
	same := func(by *lister) func() bool {
		return func() bool { return fmt.Sprint(all(by)) == fmt.Sprint(ids) }
	}
	shipped := func(by *lister) func() bool {
		return func() bool {
			text := by.get(http.StatusOK, "/metrics")
			return strings.Contains(text, "\nagentgate_receipt_index_behind 0\n") && strings.Contains(text, "\nagentgate_receipt_index_ok 1\n")
		}
	}
	eventually(t, "both have shipped", func() bool { return shipped(one)() && shipped(two)() })
	eventually(t, "each lists all", func() bool { return same(one)() && same(two)() })
	one.get(http.StatusBadRequest, "/admin/v1/receipts?cursor=1.2")

	database.Stop()
	ids = append(ids, one.call())
	eventually(t, "it is seen that rows wait", func() bool {
		return strings.Contains(one.get(http.StatusOK, "/metrics"), "\nagentgate_receipt_index_ok 0\n")
	})
	if page := one.list(""); page.Of != "replica" || len(page.Receipts) != 5 || page.Receipts[4].ID != ids[len(ids)-1] {
		t.Errorf("while the database is away: %+v", page)
	}
	one.get(http.StatusServiceUnavailable, "/admin/v1/receipts?cursor=1.2.agentgate/x")
	database.Again(t)
	eventually(t, "what came meanwhile is there", func() bool { return shipped(one)() && same(one)() })

	ids = append(ids, two.call())
	two.s.stop(context.Background())
	if !same(one)() {
		t.Errorf("the end of a replica that was stopped is not there: %v, want %v", all(one), ids)
	}
	settings := *one.s.settings
	rows, more, err := listFleet(context.Background(), &settings, receipts.Query{Limit: 3}, "")
	if err != nil || len(rows) != 3 || rows[0].Record.ID != ids[len(ids)-1] || more == "" {
		t.Errorf("the command: %d rows, more at %q, %v", len(rows), more, err)
	}
	if _, _, err := listFleet(context.Background(), &settings, receipts.Query{}, "5"); err == nil {
		t.Error("the command takes a cursor that is none")
	}
}
