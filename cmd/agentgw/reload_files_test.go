package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentgw/internal/store"
)

// configSeen is what GET /admin/v1/config says of the registry file.
type configSeen struct {
	Running struct{ SHA256, Since string }
	OnDisk  struct{ SHA256, Error string } `json:"on_disk"`
	InForce bool                           `json:"in_force"`
	Failure *struct {
		At, Since string
		Problems  []struct{ Path, What string }
	} `json:"last_error"`
}

func (r *reloading) config() (c configSeen) {
	r.t.Helper()
	status, body := r.operate(http.MethodGet, "/admin/v1/config", operators)
	if err := json.Unmarshal([]byte(body), &c); err != nil || status != http.StatusOK {
		r.t.Fatalf("%d %s: %v", status, body, err)
	}
	return c
}

// TestReloadOfWhatIsNoRegistry: whatever stands in the file's place, the old one
// serves on, everybody who looks is told at once, and the file is taken over
// again when it is back.
func TestReloadOfWhatIsNoRegistry(t *testing.T) {
	const tenant = "{rps: 100, burst: 100}"
	r := newReloading(t, tenant)
	before := r.config()
	put := func(text []byte) func() error {
		return func() error { // whole at once: half of a file of comments is another file, which may be taken
			if err := os.WriteFile(r.file+".new", text, 0o600); err != nil {
				return err
			}
			return os.Rename(r.file+".new", r.file)
		}
	}
	for _, c := range []struct {
		name string
		put  func() error
		want string
		hash bool // the file on disk has one
	}{
		{"nothing", func() error { return nil }, "no such file", false},
		{"an empty file", put(nil), "the file is empty", true},
		{"half a file", put([]byte("version: 1\nservices: {tools: {base")), "not sound YAML", true},
		{"a file too large", put(bytes.Repeat([]byte("# a comment\n"), 100_000)), "larger than 1048576 bytes", false},
		{"a binary", put([]byte("\x7fELF\x00\x01")), "not sound YAML", true},
		{"a folder", func() error { return os.Mkdir(r.file, 0o700) }, "not a regular file", false},
		{"a pipe that nobody writes to", func() error { return syscall.Mkfifo(r.file, 0o600) }, "not a regular file", false},
		{"a socket", func() error {
			l, err := net.Listen("unix", r.file)
			if err == nil {
				l.(*net.UnixListener).SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		}, r.file, false},
		{"a link to itself", func() error { return os.Symlink(filepath.Base(r.file), r.file) }, "too many levels", false},
		{"a link to nothing", func() error { return os.Symlink("nowhere", r.file) }, "no such file", false},
		{"a file of somebody else", func() error {
			if os.Getuid() == 0 { // who may read everything
				return os.Symlink("/proc/1/mem/registry.yaml", r.file)
			}
			return os.WriteFile(r.file, []byte("version: 1\n"), 0)
		}, "open " + r.file, false},
	} {
		if err := os.RemoveAll(r.file); err != nil {
			t.Fatal(err)
		}
		if err := c.put(); err != nil {
			t.Fatal(c.name, err)
		}
		status, body := r.operate(http.MethodPost, "/admin/v1/reload", operators)
		if status != http.StatusUnprocessableEntity || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
		got := r.config()
		if got.InForce || got.Running != before.Running || got.Failure == nil || !strings.Contains(got.Failure.Problems[0].What, c.want) && c.want != r.file ||
			(got.OnDisk.SHA256 != "") != c.hash || (got.OnDisk.Error != "") == c.hash {
			t.Errorf("%s: %+v", c.name, got)
		}
		want := c.want
		if got.Failure.Problems[0].Path != "" { // without a token, where it is and not what
			want = r.file + ":"
		}
		if status, body := r.operate(http.MethodGet, "/readyz?verbose", ""); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: readyz says %d %s", c.name, status, body)
		}
		if got := r.admitted(1); got != 1 {
			t.Errorf("%s: the old file does not serve on", c.name)
		}
		if err := os.RemoveAll(r.file); err != nil {
			t.Fatal(err)
		}
		r.reload(tenant)
		if got := r.config(); !got.InForce || got.Failure != nil || got.Running != before.Running {
			t.Errorf("after %s: %+v", c.name, got)
		}
	}
}

// TestReloadTellsWhenWhatWentWrong: since when no file could be used, and since
// when it is this that is wrong.
func TestReloadTellsWhenWhatWentWrong(t *testing.T) {
	r := newReloading(t, "{rps: 10}")
	fail := func(tenant string) (at, since string) {
		t.Helper()
		r.write(tenant)
		if status, body := r.operate(http.MethodPost, "/admin/v1/reload", operators); status != http.StatusUnprocessableEntity {
			t.Fatalf("%d %s", status, body)
		}
		f := r.config().Failure
		return f.At, f.Since
	}
	at, since := fail("{rsp: 10}")
	if at != since {
		t.Errorf("the first: at %s, since %s", at, since)
	}
	if again, s := fail("{rsp: 10}"); again != at || s != since {
		t.Errorf("the same again: at %s, since %s; want %s", again, s, at)
	}
	if next, s := fail("{rps: ten}"); next <= at || s != since {
		t.Errorf("another: at %s, since %s; want later than %s, and since %s", next, s, at, since)
	}
	r.reload("{rps: 10}")
	if at, s := fail("{rsp: 10}"); at != s || s <= since {
		t.Errorf("after one that was good: at %s, since %s", at, s)
	}
}

// TestReloadOfTheSameFileIsNone: a file that was touched, or written anew with
// what it had, changes nothing, and nobody is told that it did.
func TestReloadOfTheSameFileIsNone(t *testing.T) {
	const tenant = "{rps: 0.01, burst: 5, max_inflight: 0}"
	r := newReloading(t, tenant)
	before, lines := r.config(), r.log.String()
	read := make(chan struct{}, 100)
	note := func() { read <- struct{}{} }
	r.reading.Store(&note)
	r.write(tenant)
	if err := os.Chtimes(r.file, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := r.server.live.reload(context.Background(), false); err != nil { // as the watcher has it
		t.Fatal(err)
	}
	if after := r.log.String(); after != lines {
		t.Errorf("the log says: %s", strings.TrimPrefix(after, lines))
	}
	if after := r.config(); after.Running != before.Running || !after.InForce || after.Failure != nil {
		t.Errorf("%+v, want %+v", after, before)
	}
	if len(read) > 0 {
		t.Error("the file was parsed, though its hash is the one that runs")
	}
	r.reload(tenant) // an operator who asks is told, and told that nothing changed
	if told := strings.TrimPrefix(r.log.String(), lines); strings.Count(told, "\n") != 1 || !strings.Contains(told, "changed=false") {
		t.Errorf("asked, the log says: %s", told)
	}
}

// TestReloadBySignal: SIGHUP has the file read at once, though it may not have
// been seen to change, and a signal to stop does not wait for the reading.
func TestReloadBySignal(t *testing.T) {
	r := newReloading(t, "{rps: 0.01, burst: 1, max_inflight: 0}")
	s := signals{stop: make(chan os.Signal, 2), hangUp: make(chan os.Signal, 1)}
	ended := make(chan error, 1)
	go func() { ended <- (&cli{}).untilStopped(r.server, s) }()
	r.write("{rsp: 1}")
	s.hangUp <- syscall.SIGHUP
	eventually(t, "the log says what is wrong", func() bool { return strings.Contains(r.log.String(), "tenants.t.rsp") })

	reading, let := make(chan struct{}, 100), make(chan struct{})
	defer close(let)
	block := func() { reading <- struct{}{}; <-let }
	r.reading.Store(&block)
	for rps := 5; len(reading) == 0; rps++ { // unless the watcher was quicker, and had not yet met the block
		r.write(fmt.Sprintf("{rps: %d}", rps))
		s.hangUp <- syscall.SIGHUP
		eventually(t, "the signal is heard", func() bool { return len(s.hangUp) == 0 || len(reading) > 0 })
		for end := time.Now().Add(time.Second); len(reading) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
	}
	s.stop <- syscall.SIGTERM
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the gateway waits for the file before it stops")
	}
}

// TestNobodyWaitsForAReload: while the file is being read, from a disk that does
// not answer, calls are served, operators are answered, and a revoked key is.
func TestNobodyWaitsForAReload(t *testing.T) {
	r := newReloading(t, "{rps: 100, burst: 100}")
	reading, let := make(chan struct{}), make(chan struct{})
	block := func() { reading <- struct{}{}; <-let }
	r.reading.Store(&block)
	r.write("{rps: 100, burst: 100, weight: 2}")
	answered := make(chan int, 1)
	go func() {
		status, _ := r.operate(http.MethodPost, "/admin/v1/reload", operators)
		answered <- status
	}()
	<-reading
	for path, token := range map[string]string{"/readyz?verbose": "", "/metrics": "", "/admin/v1/config": operators, "/admin/v1/tenants": operators} {
		if status, _ := r.operate(http.MethodGet, path, token); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	id := r.storedKey(store.Key{ID: "made"}, nil)
	eventually(t, "a new key is served", func() bool { return r.callAs(id, "get").StatusCode == http.StatusOK })
	if err := r.server.store.RevokeKey(context.Background(), "made", time.Now()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a revoked key is not", func() bool { return r.callAs(id, "get").StatusCode == http.StatusUnauthorized })
	never := func() {}
	r.reading.Store(&never)
	close(let)
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the reload: %d", status)
	}
}

// TestReloadThatAStoredKeyForbids: a file that is sound, and must not be run with
// a key of the state store, is refused and names the key; when that is revoked
// the file is taken over at the next look.
func TestReloadThatAStoredKeyForbids(t *testing.T) {
	r := newReloading(t, "{rps: 10, burst: 10}")
	r.settings = "rate_tenant_rps: 0"
	r.reload("{rps: 0, max_inflight: 5}")
	r.storedKey(store.Key{ID: "loose"}, &store.Limits{RPS: 0, Burst: 0})
	r.settings = ""
	r.write("{rps: 0, max_inflight: 5}")
	status, body := r.operate(http.MethodPost, "/admin/v1/reload", operators)
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, "key loose of the state store") {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := r.operate(http.MethodGet, "/readyz?verbose", ""); status != http.StatusOK || !strings.Contains(body, "key loose of the state store") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if err := r.server.store.RevokeKey(context.Background(), "loose", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := r.server.live.reload(context.Background(), false); err != nil { // as the watcher's net has it
		t.Fatal(err)
	}
	if got := r.config(); !got.InForce || got.Failure != nil || !strings.Contains(r.log.String(), "changed=true") {
		t.Errorf("with the key revoked: %+v", got)
	}
}
