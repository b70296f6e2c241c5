package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
	"agentgw/internal/store"
)

// reloading is a gateway that runs by a file.
type reloading struct {
	t        *testing.T
	file     string
	key      string
	digest   [32]byte
	log      *lockedBuffer
	server   *server
	settings string        // members of the server: section
	more     string        // lines at the end of the services
	hold     chan struct{} // the upstream's /hold answers when it is closed
	reading  atomic.Pointer[func()]
	url      string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newReloading starts a gateway whose one key is of tenant t; limits is what
// the registry says of that tenant. Refill is out of the picture: an hour's
// burst is the most that there may be.
func newReloading(t *testing.T, tenant string) *reloading {
	t.Helper()
	r := &reloading{t: t, file: filepath.Join(t.TempDir(), "registry.yaml"), log: &lockedBuffer{}, hold: make(chan struct{})}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		if in.URL.Path == "/hold" {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.hold:
			case <-in.Context().Done():
			}
		}
	}))
	t.Cleanup(upstream.Close)
	r.url = upstream.URL
	text, digest := identity.NewKey()
	r.key, r.digest = text.Reveal(), digest
	r.write(tenant)

	command := &cobra.Command{}
	addSettingsFlags(command)
	if err := command.ParseFlags([]string{"--registry", r.file, "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--rate-key-rps", "1000", "--rate-key-burst", "1000", "--admin-token", "the-operators-token"}); err != nil {
		t.Fatal(err)
	}
	c := &cli{}
	read := func() (*config.Settings, *registry.Snapshot, error) {
		if reading := r.reading.Load(); reading != nil {
			(*reading)()
		}
		return c.readSettings(command, toReload)
	}
	settings, snapshot, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if r.server, err = start(settings, snapshot, read, slog.New(slog.NewTextHandler(r.log, nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.server.background.Err() == nil { // the test has not stopped it
			r.server.stop(context.Background())
		}
	})
	return r
}

// write puts a registry in place, as an editor does.
func (r *reloading) write(tenant string) {
	r.t.Helper()
	text := fmt.Sprintf(`version: 1
tenants:
  t: %s
server: {%s}
keys:
  - {id: k, sha256: "%x", services: ["*"], users: ["*"], tenant: t}
services:
  tools:
    base_url: %s
    allow_private: true
    actions: {get: {method: GET, path: /x}, hold: {method: GET, path: /hold}}
%s`, tenant, r.settings, r.digest, r.url, r.more)
	if err := os.WriteFile(r.file+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		r.t.Fatal(err)
	}
}

// operate asks the operators' API and returns status and body.
func (r *reloading) operate(method, path, token string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequest(method, "http://"+r.server.operatorsListener.Addr().String()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", token)
	}
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

const operators = "Bearer the-operators-token"

func (r *reloading) reload(tenant string) {
	r.t.Helper()
	r.write(tenant)
	if status, body := r.operate("POST", "/admin/v1/reload", operators); status != 200 {
		r.t.Fatalf("reload: %d %s", status, body)
	}
}

// call calls and returns the answer, whose body is still to be read.
func (r *reloading) call(action string) *http.Response {
	r.t.Helper()
	return r.callAs(r.key, action)
}

// callAs is call with another key.
func (r *reloading) callAs(key, action string) *http.Response {
	r.t.Helper()
	request, err := http.NewRequest("POST", "http://"+r.server.agentsListener.Addr().String()+"/v1/act",
		strings.NewReader(`{"service":"tools","action":"`+action+`"}`))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Agentgate-Key", key)
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// admitted calls n times and counts those that were admitted.
func (r *reloading) admitted(n int) (ok int) {
	for range n {
		res := r.call("get")
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode == 200 {
			ok++
		}
	}
	return ok
}

// TestReloadKeepsWhatWasSpent: a reload mints nothing. A burst that is raised
// does not come full, one that is lowered is the most there is, and back again,
// as often as anybody likes; so it is when something else is changed.
func TestReloadKeepsWhatWasSpent(t *testing.T) {
	const hourly = "rps: 0.01, max_inflight: 0" // a token in 100 s
	r := newReloading(t, "{burst: 10, "+hourly+"}")
	if got := r.admitted(12); got != 10 {
		t.Fatalf("at first %d of 12 admitted, want 10", got)
	}
	for _, c := range []struct {
		tenant string
		want   int
	}{
		{"{burst: 10, " + hourly + "}", 0},
		{"{burst: 10, weight: 2, " + hourly + "}", 0}, // another file, the same limits
		{"{burst: 30, " + hourly + "}", 0},            // raised
		{"{burst: 5, " + hourly + "}", 0},             // lowered
		{"{burst: 10, " + hourly + "}", 0},
	} {
		r.reload(c.tenant)
		if got := r.admitted(12); got != c.want {
			t.Errorf("after %s: %d admitted, want %d", c.tenant, got, c.want)
		}
	}
	for round := range 20 {
		r.more = fmt.Sprintf("  unrelated%d: {base_url: %q}\n", round, r.url)
		r.reload(fmt.Sprintf("{burst: %d, %s}", 10+20*(round%2), hourly))
		if got := r.admitted(2); got != 0 {
			t.Fatalf("back and forth, round %d: %d admitted, want 0", round, got)
		}
	}
	r.reload("{rps: 0, max_inflight: 0}") // off
	if got := r.admitted(12); got != 12 {
		t.Errorf("without a limit: %d of 12 admitted", got)
	}
	full := newReloading(t, "{burst: 20, "+hourly+"}")
	full.reload("{burst: 3, " + hourly + "}")
	if got := full.admitted(12); got != 3 {
		t.Errorf("a full bucket of 20 lowered to 3: %d admitted, want 3", got)
	}
}

// TestReloadKeepsSlots: running calls stay counted, whatever becomes of the cap.
func TestReloadKeepsSlots(t *testing.T) {
	limit := func(most int) string { return fmt.Sprintf("{rps: 1000, burst: 1000, max_inflight: %d}", most) }
	r := newReloading(t, limit(2))
	for range 2 {
		if res := r.call("hold"); res.StatusCode != 200 {
			t.Fatalf("%s", res.Status)
		}
	}
	for i, c := range []struct{ most, want int }{{2, 429}, {1, 429}, {3, 200}, {3, 200}, {2, 429}, {1, 429}} {
		r.reload(limit(c.most))
		res := r.call("get")
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != c.want {
			t.Errorf("%d: two in flight and a cap of %d: %d, want %d", i, c.most, res.StatusCode, c.want)
		}
	}
	close(r.hold)
	eventually(t, "the slots of the first file's calls come free", func() bool { return r.admitted(1) == 1 }) // under the cap of 1
}

// TestReloadOfABadFile: the old one serves on, and everybody who looks is told,
// until the file is mended.
func TestReloadOfABadFile(t *testing.T) {
	r := newReloading(t, "{rps: 10, burst: 10}")
	var before, after struct {
		Running struct{ SHA256 string }
		OnDisk  struct{ SHA256 string } `json:"on_disk"`
		InForce bool                    `json:"in_force"`
		Failure *struct {
			Since    string
			Problems []struct {
				Line int
				Path string
				What string
			}
		} `json:"last_error"`
	}
	look := func(into any) {
		t.Helper()
		status, body := r.operate("GET", "/admin/v1/config", operators)
		if err := json.Unmarshal([]byte(body), into); err != nil || status != 200 {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		if strings.Contains(body, "the-operators-token") {
			t.Error("the configuration shows a secret")
		}
	}
	look(&before)
	if !before.InForce || before.Failure != nil || before.Running.SHA256 == "" || before.Running != before.OnDisk {
		t.Errorf("at first: %+v", before)
	}
	r.write("{rsp: 10, burst: 10}")
	status, body := r.operate("POST", "/admin/v1/reload", operators)
	if status != 422 || !strings.Contains(body, "did you mean rps?") || !strings.Contains(body, `"line":3`) {
		t.Errorf("reload of a bad file: %d %s", status, body)
	}
	if got := r.admitted(1); got != 1 {
		t.Error("the old file does not serve on")
	}
	look(&after)
	if after.InForce || after.Running != before.Running || after.OnDisk == after.Running || after.Failure == nil ||
		after.Failure.Problems[0].Line != 3 || after.Failure.Problems[0].Path != "tenants.t.rsp" {
		t.Errorf("after a bad file: %+v", after)
	}
	since := after.Failure.Since
	r.operate("POST", "/admin/v1/reload", operators)
	if look(&after); after.Failure.Since != since {
		t.Errorf("asked again, the file cannot be used since %s, but it was since %s", after.Failure.Since, since)
	}
	if _, metrics := r.operate("GET", "/metrics", ""); !strings.Contains(metrics, "agentgate_registry_reload_ok 0") {
		t.Error("the metric does not tell")
	}
	if status, body := r.operate("GET", "/readyz?verbose", ""); status != 200 || !strings.Contains(body, "tenants.t.rsp") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if !strings.Contains(r.log.String(), "tenants.t.rsp") {
		t.Error("the log does not tell")
	}
	r.write("{rps: 10, burst: 10}") // the very bytes that run
	eventually(t, "the log says that all is well", func() bool {
		lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
		return strings.Contains(lines[len(lines)-1], "is in force")
	})
	look(&after)
	if _, metrics := r.operate("GET", "/metrics", ""); !after.InForce || !strings.Contains(metrics, "agentgate_registry_reload_ok 1") {
		t.Errorf("after the file was mended: %+v", after)
	}
}

// eventually waits for an effect of something that happens elsewhere.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// napping measures time in naps of 10 ms: where the program promises to have done
// something within seconds, a machine that is too busy for that has the naps last
// longer too.
func napping(t *testing.T) (passed func() time.Duration) {
	const nap = 10 * time.Millisecond
	var naps atomic.Int64
	go func() {
		for t.Context().Err() == nil {
			time.Sleep(nap)
			naps.Add(1)
		}
	}()
	return func() time.Duration { return time.Duration(naps.Load()) * nap }
}

// TestReloadByItself: a changed file is in force without anybody asking.
func TestReloadByItself(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 1, max_inflight: 0}")
	r.admitted(1)
	r.write("{rps: 0, max_inflight: 0}")
	eventually(t, "the changed file comes into force", func() bool { return r.admitted(1) == 1 })
}

// TestReloadOfSettings: the settings that calls read change with the file, and
// of those that only a start reads the log names the changed ones.
func TestReloadOfSettings(t *testing.T) {
	r := newReloading(t, "{rps: 10, burst: 10}")
	r.settings = "max_request_body: 10, rate_idle: 1h, rate_key_rps: 1"
	r.reload("{rps: 10, burst: 10}")
	if res := r.call("get"); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the new bound: %s", res.Status)
	}
	status, config := r.operate("GET", "/admin/v1/config", operators)
	for _, want := range []string{
		`{"name":"AGENTGATE_MAX_REQUEST_BODY","value":"10","source":"` + r.file + `:4:10 server.max_request_body"}`,
		`{"name":"AGENTGATE_RATE_IDLE","value":"10m","source":"default","after_restart":"1h"}`,
		`{"name":"AGENTGATE_RATE_KEY_RPS","value":"1000","source":"flag --rate-key-rps"}`,
	} {
		if status != http.StatusOK || !strings.Contains(config, want) {
			t.Errorf("%d %s\nwithout %s", status, config, want)
		}
	}
	var warned string
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "only a start reads") {
			warned += line
		}
	}
	if !strings.Contains(warned, "AGENTGATE_RATE_IDLE") || strings.Contains(warned, "MAX_REQUEST_BODY") || strings.Contains(warned, "RATE_KEY_RPS") {
		t.Errorf("warned of %q, want AGENTGATE_RATE_IDLE alone (the flag for the key's rate wins over the file)", warned)
	}
}

// TestReloadOfWhatCallsGoBy: whom the gateway takes a caller for, what it records
// before a call, and how much the callers without limits of their own may do.
func TestReloadOfWhatCallsGoBy(t *testing.T) {
	r := newReloading(t, "{rps: 10, burst: 10}")
	alone := r.storedKey(store.Key{ID: "alone"}, nil)
	type record struct {
		Kind       string
		ClientAddr string `json:"client_addr"`
	}
	send := func() (res *http.Response, records []record) {
		t.Helper()
		request, err := http.NewRequest("POST", "http://"+r.server.agentsListener.Addr().String()+"/v1/act", strings.NewReader(`{"service":"tools","action":"get"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Agentgate-Key", alone)
		request.Header.Set("X-Forwarded-For", "203.0.113.7")
		if res, err = http.DefaultClient.Do(request); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if receipt := receiptID.FindStringSubmatch(res.Header.Get("Agentgate-Receipt")); receipt != nil {
			lines, err := r.server.receipts.Find(receipt[1], "alone")
			if err != nil {
				t.Fatal(err)
			}
			records = make([]record, len(lines))
			for i, line := range lines {
				if err := json.Unmarshal(line, &records[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		return res, records
	}
	eventually(t, "the key is served", func() bool { return r.callAs(alone, "get").StatusCode == http.StatusOK })
	_, records := send()
	if len(records) != 2 || records[1].ClientAddr != "127.0.0.1" {
		t.Errorf("at first: %+v", records)
	}
	r.settings = "trusted_proxies: [127.0.0.0/8], receipt_intent: never, rate_tenant_rps: 0.001, rate_tenant_burst: 3, tenant_max_inflight: 7"
	r.reload("{rps: 10, burst: 10}")
	res, records := send()
	if len(records) != 1 || records[0].ClientAddr != "203.0.113.7" {
		t.Errorf("after a reload: %+v", records)
	}
	if fields := res.Header.Get("RateLimit"); !strings.Contains(fields, `"tenant";r=2;`) || !strings.Contains(fields, `"inflight";r=6`) {
		t.Errorf("after a reload: %s", fields)
	}
	r.settings = ""
	r.reload("{rps: 10, burst: 10}")
	if _, records := send(); len(records) != 2 || records[1].ClientAddr != "127.0.0.1" {
		t.Errorf("and back: %+v", records)
	}
}

// TestReloadRefusesWhatAStartRefuses: a burst over an hour of its rate.
func TestReloadRefusesWhatAStartRefuses(t *testing.T) {
	r := newReloading(t, "{rps: 0, max_inflight: 3}")
	r.write("{rps: 1, burst: 4000}") // over an hour of its rate
	if status, body := r.operate("POST", "/admin/v1/reload", operators); status != 422 || !strings.Contains(body, "hour") {
		t.Errorf("%d %s", status, body)
	}
}

// TestOperatorsOnly: the API is for who has the token, on the operators' side.
func TestOperatorsOnly(t *testing.T) {
	r := newReloading(t, "{rps: 10, burst: 10}")
	for _, token := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic the-operators-token", "the-operators-token", "Bearer the-operators-token2"} {
		for _, path := range []string{"/admin/v1/config", "/admin/v1/nothing"} {
			if status, body := r.operate("GET", path, token); status != 401 || strings.Contains(body, "sha256") {
				t.Errorf("%q: %d %s", token, status, body)
			}
		}
	}
	if status, _ := r.operate("GET", "/admin/v1/nothing", operators); status != 404 {
		t.Errorf("an unknown path: %d", status)
	}
	for _, path := range []string{"/admin/v1/config", "/metrics", "/v1/..%2f..%2fadmin/v1/config"} {
		request, err := http.NewRequest("GET", "http://"+r.server.agentsListener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", operators)
		res, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 401 {
			t.Errorf("%s on the agents' side: %d", path, res.StatusCode)
		}
	}
}

// storedKey puts a key for everything into the state store and returns its text.
func (r *reloading) storedKey(k store.Key, limits *store.Limits) string {
	r.t.Helper()
	text, digest := identity.NewKey()
	k.Digest, k.Services, k.Users, k.Limits, k.CreatedAt = digest, []string{"*"}, []string{"*"}, limits, time.Now()
	if err := r.server.store.AddKey(context.Background(), k); err != nil {
		r.t.Fatal(err)
	}
	return text.Reveal()
}
