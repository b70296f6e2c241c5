package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
)

// measured is a running gateway whose metrics are looked at.
type measured struct {
	*server
	t    *testing.T
	keys map[string]string
	log  *lockedBuffer
}

// measure starts a gateway in front of upstream, which stands as UPSTREAM in the
// registry. "KEY ID" in it becomes the id and digest of a key of that id.
func measure(t *testing.T, upstream http.HandlerFunc, file string, flags ...string) *measured {
	t.Helper()
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	m := &measured{t: t, keys: map[string]string{}, log: &lockedBuffer{}}
	file = strings.ReplaceAll(file, "UPSTREAM", up.URL)
	for before, rest, found := strings.Cut(file, "KEY "); found; before, rest, found = strings.Cut(file, "KEY ") {
		id := rest[:strings.IndexByte(rest, ',')]
		text, digest := identity.NewKey()
		m.keys[id] = text.Reveal()
		file = fmt.Sprintf("%sid: %s, sha256: %q%s", before, id, fmt.Sprintf("%x", digest), rest[len(id):])
	}
	snapshot, err := registry.Parse("r.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(set)
	if err := set.Parse(append([]string{"--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, flags...)); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load(set, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.server, err = start(settings, snapshot, nil, slog.New(slog.NewTextHandler(m.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.stop(context.Background()) })
	return m
}

// send sends a request with a gateway key, and leaves the answer open.
func (m *measured) send(method, path, key, body string) *http.Response {
	m.t.Helper()
	r, err := http.NewRequest(method, "http://"+m.agentsListener.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header.Set("Agentgate-Key", key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	return res
}

// status is send, for the status alone.
func (m *measured) status(method, path, key, body string) int {
	m.t.Helper()
	res := m.send(method, path, key, body)
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		m.t.Fatal(err)
	}
	return res.StatusCode
}

// scrape reads the gateway's own series, each with its labels.
func (m *measured) scrape() map[string]float64 {
	m.t.Helper()
	res, err := http.Get("http://" + m.operatorsListener.Addr().String() + "/metrics")
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != 200 {
		m.t.Fatal(res.Status)
	}
	series := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasPrefix(name, "agentgate_") {
			continue
		}
		if series[name], err = strconv.ParseFloat(value, 64); err != nil {
			m.t.Fatal(err)
		}
	}
	return series
}

func (m *measured) want(series map[string]float64, want map[string]float64) {
	m.t.Helper()
	for name, value := range want {
		if got, told := series[name]; got != value || !told {
			m.t.Errorf("%s is %v (told: %v), want %v", name, got, told, value)
		}
	}
}

const measuredRegistry = `version: 1
tenants:
  acme: {rps: 0.003, burst: 10, max_inflight: 3}
  quiet: {max_inflight: 3}
keys:
  - {KEY bot, services: ["*"], users: ["*"], tenant: acme, limits: {rps: 1000, burst: 2000}}
  - {KEY loose, services: ["*"], users: ["*"], limits: {rps: 1000, burst: 2000}}
  - {KEY narrow, services: [tools], users: ["*"], limits: {rps: 1000, burst: 2000}}
services:
  tools: {base_url: UPSTREAM, allow_private: true, max_inflight: 5, actions: {get: {method: GET, path: /get}, stream: {method: GET, path: /stream}}}
  limited: {base_url: UPSTREAM, allow_private: true, rate_limit: {rps: 0.001, burst: 1}, actions: {get: {method: GET, path: /get}}}
`

func measuredUpstream(end chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-end:
			case <-r.Context().Done():
			}
		}
	}
}

// TestMetricsTellWhatHappens: decisions by code and limit, what is in flight and
// left, the tables, and the time to an upstream's header, which of a stream is
// known before it ends.
func TestMetricsTellWhatHappens(t *testing.T) {
	end := make(chan struct{})
	m := measure(t, measuredUpstream(end), measuredRegistry, "--rate-table-size", "50", "--max-inflight", "4")
	get, stream := `{"service":"tools","action":"get"}`, `{"service":"tools","action":"stream"}`
	open := m.send("POST", "/v1/act", m.keys["bot"], stream)
	defer func() { _ = open.Body.Close() }()
	for _, c := range []struct {
		key, body string
		status    int
	}{
		{"bot", get, 200}, {"loose", `{"service":"limited","action":"get"}`, 200}, {"loose", `{"service":"limited","action":"get"}`, 429},
		{"narrow", `{"service":"limited","action":"get"}`, 403}, {"loose", `{"service":"none","action":"get"}`, 404}, {"", get, 401},
	} {
		if got := m.status("POST", "/v1/act", m.keys[c.key], c.body); got != c.status {
			t.Fatalf("%s %s: %d", c.key, c.body, got)
		}
	}
	if got := m.status("GET", "/v1/services", "", ""); got != 401 {
		t.Fatal(got)
	}
	series := m.scrape()
	m.want(series, map[string]float64{
		`agentgate_decisions_total{code="ok",limit="",service="tools"}`:                    1, // the stream is counted when it has ended
		`agentgate_decisions_total{code="ok",limit="",service="limited"}`:                  1,
		`agentgate_decisions_total{code="rate_limited",limit="service",service="limited"}`: 1,
		`agentgate_decisions_total{code="scope_denied",limit="",service="limited"}`:        1,
		`agentgate_decisions_total{code="service_not_found",limit="",service=""}`:          1,
		`agentgate_decisions_total{code="unauthenticated",limit="",service=""}`:            2,
		`agentgate_inflight{tenant="tenant:acme"}`:                                         1,
		`agentgate_inflight_limit{tenant="tenant:acme"}`:                                   3,
		`agentgate_inflight{tenant="tenant:quiet"}`:                                        0,
		`agentgate_inflight{tenant="other"}`:                                               0,
		`agentgate_bucket_tokens{tenant="tenant:acme"}`:                                    8,
		`agentgate_buckets{level="high",limit="tenant"}`:                                   2, // acme's and loose's
		`agentgate_buckets{level="empty",limit="service"}`:                                 1,
		`agentgate_buckets{level="high",limit="key"}`:                                      3,
		`agentgate_buckets{level="high",limit="address"}`:                                  1,
		`agentgate_service_inflight{service="tools"}`:                                      1,
		`agentgate_service_inflight_limit{service="tools"}`:                                5,
		`agentgate_service_inflight{service="limited"}`:                                    0,
		`agentgate_process_inflight`:                                                       1,
		`agentgate_process_inflight_limit`:                                                 4,
		`agentgate_limiter_table_size{table="registered"}`:                                 50,
		`agentgate_limiter_entries{table="registered"}`:                                    6,
		`agentgate_limiter_pinned{table="registered"}`:                                     1,
		`agentgate_limiter_entries{table="addresses"}`:                                     1,
		`agentgate_limiter_evictions_total{table="registered"}`:                            0,
		`agentgate_limiter_swept_total{table="registered"}`:                                0,
		`agentgate_limiter_overflowed_total{table="registered"}`:                           0,
		`agentgate_limiter_unexpired_evictions_total{table="registered"}`:                  0,
		`agentgate_limiter_tickets_leaked_total`:                                           0,
		`agentgate_upstream_seconds_count{service="tools"}`:                                2, // the stream's header is there
		`agentgate_upstream_seconds_count{service="limited"}`:                              1,
		`agentgate_upstream_seconds_bucket{service="tools",le="+Inf"}`:                     2,
		`agentgate_receipts_appended_total`:                                                2 + 4 + 5, // two records of what ran, one of what runs
	})
	for name := range series {
		if strings.Contains(name, "loose") || strings.Contains(name, "narrow") || strings.Contains(name, "bot") {
			t.Errorf("keys, and tenants that are keys, have series of their own: %s", name)
		}
	}
	if took := series[`agentgate_upstream_seconds_sum{service="tools"}`]; took <= 0 || took > 5 {
		t.Errorf("the upstream took %v s", took)
	}
	if n := series["agentgate_receipt_commit_seconds_count"]; n < 1 || n > 11 {
		t.Errorf("%v commits", n)
	}

	close(end)
	if _, err := io.Copy(io.Discard, open.Body); err != nil {
		t.Fatal(err)
	}
	before := series[`agentgate_upstream_seconds_sum{service="tools"}`]
	series = m.scrape()
	m.want(series, map[string]float64{
		`agentgate_inflight{tenant="tenant:acme"}`:          0,
		`agentgate_service_inflight{service="tools"}`:       0,
		`agentgate_process_inflight`:                        0,
		`agentgate_upstream_seconds_count{service="tools"}`: 2,
		`agentgate_upstream_seconds_sum{service="tools"}`:   before, // how long it lasted is not in it
	})
}

// TestMetricsInStep: docs/operating.md lists every metric of the gateway, and no other.
func TestMetricsInStep(t *testing.T) {
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, name := range regexp.MustCompile("`(agentgate_[a-z_]+)`").FindAllSubmatch(page, -1) {
		listed[string(name[1])] = true
	}
	m := measure(t, measuredUpstream(nil), measuredRegistry+"rules: [{name: r, key: caller, window: 1h, max: 1 - 1, mode: observe}]\n", "--receipt-anchor", filepath.Join(t.TempDir(), "anchor"))
	m.status("POST", "/v1/act", m.keys["bot"], `{"service":"tools","action":"get"}`)
	told := map[string]bool{}
	for series := range m.scrape() {
		name, _, _ := strings.Cut(series, "{")
		for _, part := range []string{"_bucket", "_sum", "_count"} { // of a histogram
			name = strings.TrimSuffix(name, part)
		}
		told[name] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(listed))); diff != "" {
		t.Errorf("what is told (-) and what docs/operating.md lists (+):\n%s", diff)
	}
}

// TestFullTableIsToldOperators, once and not with every call.
func TestFullTableIsToldOperators(t *testing.T) {
	m := measure(t, measuredUpstream(nil), measuredRegistry, "--rate-table-size", "1")
	for range 3 {
		for _, key := range []string{"bot", "loose", "narrow"} {
			if got := m.status("POST", "/v1/act", m.keys[key], `{"service":"tools","action":"get"}`); got != 200 {
				t.Errorf("%s: %d", key, got)
			}
		}
	}
	if n := strings.Count(m.log.String(), "a limiter table is full"); n != 1 {
		t.Errorf("told %d times, want once:\n%s", n, m.log.String())
	}
	if n := m.scrape()[`agentgate_limiter_overflowed_total{table="registered"}`]; n == 0 {
		t.Error("and the metric does not tell")
	}
}

// TestLookingCostsNothing: neither a scrape nor a look at whoami takes a token of
// the tenant, and reading one's own limit costs no more than the request itself.
func TestLookingCostsNothing(t *testing.T) {
	m := measure(t, measuredUpstream(nil), measuredRegistry)
	admitted := 0
	for i := range 12 {
		if m.status("POST", "/v1/act", m.keys["bot"], `{"service":"tools","action":"get"}`) == 200 {
			admitted++
		}
		m.want(m.scrape(), map[string]float64{`agentgate_bucket_tokens{tenant="tenant:acme"}`: float64(max(0, 9-i))})
		res := m.send("GET", "/v1/whoami", m.keys["bot"], "")
		var me struct {
			Limits []struct {
				Limit            string
				Burst, Remaining int64
			}
		}
		err := json.NewDecoder(res.Body).Decode(&me)
		_ = res.Body.Close()
		if err != nil || len(me.Limits) == 0 || me.Limits[0].Limit != "key" || me.Limits[0].Burst != 2000 || me.Limits[0].Remaining < 1990 || me.Limits[0].Remaining > 2000 {
			t.Fatalf("%v %+v", err, me)
		}
	}
	if admitted != 10 {
		t.Errorf("%d admitted of a burst of 10", admitted)
	}
}

// TestStrangersMakeNoSeries: whatever anybody writes into paths, names, keys and
// methods, the number of series is what it was.
func TestStrangersMakeNoSeries(t *testing.T) {
	m := measure(t, measuredUpstream(nil), measuredRegistry, "--rate-auth-per-minute", "0")
	random := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	text := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strconv.FormatUint(random.Uint64(), 36)
	}
	round := func() {
		unknown, _ := identity.NewKey()
		s := text()
		for _, key := range []string{m.keys["loose"], m.keys["narrow"], unknown.Reveal(), s} {
			m.status("POST", "/v1/act", key, `{"service":"`+s+`","action":"get"}`)
			m.status("POST", "/v1/act", key, `{"service":"tools","action":"`+s+`","on_behalf_of":"`+s+`"}`)
			m.status("POST", "/v1/act", key, s)
			m.status("GET", "/v1/services/"+s, key, "")
			m.status("GET", "/"+s, key, "")
			m.status(strings.ToUpper("X"+s[:3]), "/v1/act", key, "")
		}
	}
	round()
	before := m.scrape()
	rounds := 12 // of 24 requests
	if os.Getenv("DRILLS") == "full" {
		rounds = 100_000 / 24
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range rounds / 4 {
				round()
			}
		})
	}
	all.Wait()
	after := m.scrape()
	if len(after) != len(before) || len(before) < 50 {
		var grown bytes.Buffer
		for name := range after {
			if _, known := before[name]; !known {
				fmt.Fprintln(&grown, name)
			}
		}
		t.Errorf("%d series before, %d after:\n%s", len(before), len(after), grown.String())
	}
	if unauthenticated := after[`agentgate_decisions_total{code="unauthenticated",limit="",service=""}`]; unauthenticated < float64(rounds) {
		t.Errorf("%v refused authentications are counted", unauthenticated)
	}
}

// TestSeriesFollowTheRegistry: their number depends on what the registry has now
// and not on what it once had: services, rules and tenants that are gone take
// their series with them, what a last call of theirs leaves behind goes with the
// next change, and a tenant's limits are those in force.
func TestSeriesFollowTheRegistry(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 10, max_inflight: 3}")
	m := &measured{t: t, server: r.server}
	reload := func(n int) {
		t.Helper()
		text := fmt.Sprintf(`version: 1
tenants:
  t%[1]d: {rps: 0.01, burst: 20, max_inflight: %[1]d}
keys:
  - {id: k, sha256: "%[2]x", services: ["*"], users: ["*"], tenant: t%[1]d}
rules: [{name: r%[1]d, key: caller, window: 1h, max: 3}, {name: o%[1]d, key: caller, window: 1h, max: 1, mode: observe}]
services:
  s%[1]d: {base_url: "%[3]s", allow_private: true, actions: {get: {method: GET, path: /x}, hold: {method: GET, path: /hold}}}
`, n, r.digest, r.url)
		if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, body := r.operate("POST", "/admin/v1/reload", operators); status != 200 {
			t.Fatal(status, body)
		}
	}
	call := func(n, want int) {
		t.Helper()
		if got := m.status("POST", "/v1/act", r.key, fmt.Sprintf(`{"service":"s%d","action":"get"}`, n)); got != want {
			t.Fatalf("a call of s%d: %d, want %d", n, got, want)
		}
	}
	round := func(n int) {
		t.Helper()
		reload(n)
		for _, want := range []int{200, 200, 200, 429} { // two that a rule observes, one that a rule refuses
			call(n, want)
		}
	}
	nothingOf := func(series map[string]float64, gone ...string) {
		t.Helper()
		for name := range series {
			for _, label := range gone {
				if strings.Contains(name, `"`+label+`"`) {
					t.Errorf("%s is told", name)
				}
			}
		}
	}
	round(1)
	before := m.scrape()
	for n := 2; n < 12; n++ {
		round(n)
	}
	after := m.scrape()
	if len(after) != len(before) {
		t.Errorf("%d series with the first file, %d with the eleventh", len(before), len(after))
	}
	nothingOf(after, "s1", "r1", "o1", "tenant:t1", "s10", "r10", "o10", "tenant:t10")
	m.want(after, map[string]float64{
		`agentgate_inflight{tenant="tenant:t11"}`:                                  0,
		`agentgate_inflight_limit{tenant="tenant:t11"}`:                            11,
		`agentgate_bucket_tokens{tenant="tenant:t11"}`:                             17,
		`agentgate_decisions_total{code="ok",limit="",service="s11"}`:              3,
		`agentgate_decisions_total{code="rate_limited",limit="r11",service="s11"}`: 1,
		`agentgate_upstream_seconds_count{service="s11"}`:                          3,
		`agentgate_rule_observed_total{rule="o11"}`:                                2,
		`agentgate_rule_entries{rule="r11"}`:                                       1,
		`agentgate_service_inflight{service="s11"}`:                                0,
	})

	// A call that runs when its service goes is shown until it ends.
	reload(12)
	held := m.send("POST", "/v1/act", r.key, `{"service":"s12","action":"hold"}`)
	defer func() { _ = held.Body.Close() }()
	reload(13)
	m.want(m.scrape(), map[string]float64{`agentgate_service_inflight{service="s12"}`: 1, `agentgate_inflight{tenant="other"}`: 1})
	close(r.hold)
	if _, err := io.Copy(io.Discard, held.Body); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end is counted", func() bool {
		return m.scrape()[`agentgate_decisions_total{code="ok",limit="",service="s12"}`] == 1
	})
	reload(14)
	nothingOf(m.scrape(), "s12", "s13", "r12", "t12")
}
