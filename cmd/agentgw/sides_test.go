package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/registry"
)

// side is one of two registries that a gateway changes between. They differ in
// all that a call shows of what decided it: where it went, by which path and with
// which header, and the quotas of key, tenant, service and slots. A call decided
// by some of one and some of the other is seen at once; but the cap of slots is that
// of the file in force, whichever file the call came under.
type side struct {
	name     string
	upstream *httptest.Server
	least    int // of its quotas
	calls    atomic.Int64
}

// newSide starts the upstream, which takes requests that are wholly its side's.
func newSide(t *testing.T, name string, least int) *side {
	s := &side{name: name, least: least}
	s.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/"+name+"/"+name+"/1" || r.Header.Get("X-Side-"+name) != "the-secret" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(s.upstream.Close)
	return s
}

// registry is the file of this side. turn makes each one another.
func (s *side) registry(digest [32]byte, turn int) string {
	const rps = 100_000
	return fmt.Sprintf(`version: 1
# %[1]d
server: {rate_key_rps: %[2]d, rate_key_burst: %[3]d}
tenants:
  t: {rps: %[2]d, burst: %[4]d, max_inflight: %[5]d}
keys:
  - {id: k, sha256: "%[6]x", services: ["*"], users: ["*"], tenant: t, limits: {rps: %[2]d, burst: %[7]d}}
services:
  tools:
    base_url: %[8]s/%[9]s
    allow_private: true
    credential: {type: header, name: X-Side-%[9]s}
    rate_limit: {rps: %[2]d, burst: %[10]d}
    actions: {get: {method: GET, path: "/%[9]s/{id}", params: {id: string}}}
`, turn, rps, s.least, s.least+1, s.least+2, digest, s.least+3, s.upstream.URL, s.name, s.least+4)
}

// policy is what an answer decided by this side says, while caps are those of another;
// a key without a limit of its own has the default's.
func (s *side) policy(own bool, caps *side) string {
	key := s.least
	if own {
		key = s.least + 3
	}
	return fmt.Sprintf(`"key";q=%d;w=1, "tenant";q=%d;w=1, "service";q=%d;w=1, "inflight";q=%d;qu="concurrent-requests"`,
		key, s.least+1, s.least+4, caps.least+2)
}

// reloads is a gateway between two sides.
type reloads struct {
	t            *testing.T
	sides        [2]*side
	folder, file string
	key          string
	digest       [32]byte
	server       *server
	log          lockedBuffer
	client       *http.Client
	mixed        atomic.Int64
	calls        atomic.Int64
}

func newReloads(t *testing.T) *reloads {
	r := &reloads{
		t: t, folder: t.TempDir(), sides: [2]*side{newSide(t, "a", 40_000), newSide(t, "b", 60_000)},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, ExpectContinueTimeout: time.Minute}},
	}
	r.file = filepath.Join(r.folder, "registry.yaml")
	text, digest := identity.NewKey()
	r.key, r.digest = text.Reveal(), digest
	r.put(0)
	r.command("the-secret", "credentials", "set", "--service", "tools")
	command := &cobra.Command{}
	addSettingsFlags(command)
	if err := command.ParseFlags([]string{"--registry", r.file, "--data-dir", r.data(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--admin-token", "the-operators-token", "--rate-auth-per-minute", "0"}); err != nil {
		t.Fatal(err)
	}
	read := func() (*config.Settings, *registry.Snapshot, error) { return (&cli{}).readSettings(command, toReload) }
	settings, snapshot, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if r.server, err = start(settings, snapshot, read, slog.New(slog.NewTextHandler(&r.log, nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.server.stop(context.Background()) })
	return r
}

func (r *reloads) data() string { return filepath.Join(r.folder, "data") }

// put writes the file of the turn's side, as an editor does.
func (r *reloads) put(turn int) {
	if err := os.WriteFile(r.file+".new", []byte(r.sides[turn%2].registry(r.digest, turn)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		r.t.Fatal(err)
	}
}

// command runs a command line on the same data folder, as another process does.
func (r *reloads) command(stdin string, args ...string) string {
	var out, errs strings.Builder
	c := &cli{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	if code := c.run(append(args, "--registry", r.file, "--data", r.data())); code != exitDone {
		r.t.Errorf("%q: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

const oneCall = `{"service":"tools","action":"get","params":{"id":"1"}}`

// call makes one call and returns its status, or 0.
func (r *reloads) call(key string) int {
	status, _, _ := r.send(key, strings.NewReader(oneCall))
	return status
}

// send makes a call with that body and returns its status, or 0, the side by
// which it was decided, and that whose caps it was held to. What it shows of that has
// to be of one.
func (r *reloads) send(key string, body io.Reader) (status int, by, caps *side) {
	request, err := http.NewRequest("POST", "http://"+r.server.agentsListener.Addr().String()+"/v1/act", body)
	if err != nil {
		r.t.Error(err)
		return 0, nil, nil
	}
	request.Header.Set("Agentgate-Key", key)
	if held, ok := body.(*held); ok {
		request.Header.Set("Expect", "100-continue")
		request.ContentLength = int64(held.Len())
	}
	r.calls.Add(1)
	res, err := r.client.Do(request)
	if err != nil {
		r.t.Error(err)
		return 0, nil, nil
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Error(err)
	}
	if res.StatusCode == http.StatusUnauthorized {
		return res.StatusCode, nil, nil
	}
	for _, s := range r.sides {
		for _, caps := range r.sides {
			if string(text) == s.name && res.Header.Get("RateLimit-Policy") == s.policy(key == r.key, caps) && res.StatusCode == http.StatusOK {
				s.calls.Add(1)
				return res.StatusCode, s, caps
			}
		}
	}
	r.mixed.Add(1)
	r.t.Errorf("%s from %q, policy %s", res.Status, text, res.Header.Get("RateLimit-Policy"))
	return res.StatusCode, nil, nil
}

// held is a body that the gateway asks for, and does not get before it may.
type held struct {
	*strings.Reader
	asked chan struct{} // closed when it was
	may   chan struct{}
	once  sync.Once
}

func (h *held) Read(p []byte) (int, error) {
	h.once.Do(func() { close(h.asked) })
	<-h.may
	return h.Reader.Read(p)
}

// across begins calls whose key is known and whose body is not read yet, and
// returns how they go on when another file is in force: by the file under which
// they came, under the caps of the other.
func (r *reloads) across(turn int) (goOn func()) {
	may := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		body := &held{Reader: strings.NewReader(oneCall), asked: make(chan struct{}), may: may}
		all.Go(func() {
			if _, by, caps := r.send(r.key, body); by != r.sides[turn%2] || caps != r.sides[(turn+1)%2] {
				r.t.Errorf("a call that came under file %s was decided by another, or under its caps", r.sides[turn%2].name)
			}
		})
		select {
		case <-body.asked: // by a 100 (Continue), which comes when it is read
		case <-time.After(time.Minute):
			r.t.Error("the gateway does not ask for a body")
		}
	}
	return func() {
		close(may)
		all.Wait()
	}
}

// inForce reports whether the file as it is on disk is what calls are decided by.
func (r *reloads) inForce() bool {
	c := r.server.live.config()
	return c.Running == c.OnDisk
}

func (r *reloads) ask() {
	request, err := http.NewRequest("POST", "http://"+r.server.operatorsListener.Addr().String()+"/admin/v1/reload", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", operators)
	res, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		r.t.Errorf("reload: %s", res.Status)
	}
}

// quiet closes every idle connection and returns how many goroutines there are.
func (r *reloads) quiet() int {
	r.client.CloseIdleConnections()
	r.server.gateway.Close()
	return runtime.NumGoroutine()
}
