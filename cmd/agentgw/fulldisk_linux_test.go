package main

import (
	"context"
	"errors"
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
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
)

// volume mounts a file system of that many bytes, in memory, for one test.
func volume(t *testing.T, size int64) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		t.Skipf("a real full disk was not tried: a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes what is left of the volume, as dd does.
func fill(t *testing.T, dir string) (file string) {
	t.Helper()
	file = filepath.Join(dir, "fill")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, n := range []int{64 << 10, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, n))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return file
}

// TestTheDiskIsFull fills a real file system under a running gateway, in both modes,
// while agents call. What is refused was not done, what was begun is recorded, the
// operators' side answers, and once there is room again the gateway goes on by itself
// and every answer has a receipt or is counted.
func TestTheDiskIsFull(t *testing.T) {
	for _, mode := range []string{"refuse", "allow"} {
		t.Run(mode, func(t *testing.T) { theDiskIsFull(t, mode) })
	}
}

func theDiskIsFull(t *testing.T, mode string) {
	vol := volume(t, 4<<20)
	data := filepath.Join(vol, "data")
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	var upstreamCalls atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upstreamCalls.Add(1)
		if r.URL.Path == "/slow" {
			held <- struct{}{}
			<-hold
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	defer upstream.Close()
	snapshot, err := registry.Parse("r.yaml", fmt.Appendf(nil, "version: 1\nservices:\n  tools:\n    base_url: %s\n    allow_private: true\n    actions:\n      get: {method: GET, path: /x}\n      slow: {method: GET, path: /slow}\n", upstream.URL))
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse([]string{"--data-dir", data, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--receipt-on-failure", mode,
		"--rate-key-rps", "100000", "--rate-key-burst", "100000", "--rate-tenant-rps", "100000", "--rate-tenant-burst", "100000"}); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load(flags, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	said := &lockedBuffer{}
	s, err := start(settings, snapshot, nil, slog.New(slog.NewJSONHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			s.stop(context.Background())
		}
	}()
	key := s.firstKey.Reveal()
	var answers, named, refused, bare atomic.Int64
	act := func(action string) (status int, header http.Header) {
		r, err := http.NewRequest("POST", "http://"+s.agentsListener.Addr().String()+"/v1/act", strings.NewReader(`{"service":"tools","action":"`+action+`"}`))
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		defer func() { _ = res.Body.Close() }()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		answers.Add(1)
		switch {
		case res.Header.Get("Agentgate-Receipt") != "":
			named.Add(1)
		case res.StatusCode == 503:
			refused.Add(1)
		default:
			bare.Add(1)
		}
		return res.StatusCode, res.Header
	}
	operators := func(path string) (int, string) {
		res, err := http.Get("http://" + s.operatorsListener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	var slow sync.WaitGroup
	slow.Go(func() {
		if status, header := act("slow"); status != 200 || header.Get("Agentgate-Receipt") == "" {
			t.Errorf("the call that was under way: %d %v", status, header)
		}
	})
	<-held
	file := fill(t, vol)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for s.receipts.Healthy() == nil {
				act("get")
			}
			for range 20 {
				act("get")
			}
		})
	}
	callers.Wait()
	before := upstreamCalls.Load()
	status, header := act("get")
	if mode == "refuse" && (status != 503 || header.Get("Agentgate-Code") != "receipt_unavailable" || header.Get("Retry-After") == "" || upstreamCalls.Load() != before) {
		t.Errorf("%d %v, and %d calls of the upstream", status, header, upstreamCalls.Load()-before)
	}
	if mode == "allow" && (status != 200 || header.Get("Agentgate-Receipt") != "" || upstreamCalls.Load() != before+1) {
		t.Errorf("%d %v, and %d calls of the upstream", status, header, upstreamCalls.Load()-before)
	}
	if status, body := operators("/readyz"); mode == "refuse" && (status != 503 || !strings.Contains(body, "no room on the disk")) || mode == "allow" && status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, _ := operators("/livez"); status != 200 {
		t.Errorf("/livez: %d", status)
	}
	if _, body := operators("/metrics"); !strings.Contains(body, "\nagentgate_receipts_ok 0\n") || !strings.Contains(body, "\nagentgate_receipt_disk_free_bytes ") {
		t.Error("the metrics do not say so")
	}
	if status, _ := operators("/admin/v1/tenants"); status != 401 { // it answers, though not to us
		t.Errorf("the operators' API: %d", status)
	}
	close(hold)
	slow.Wait()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	passed := napping(t)
	eventually(t, "calls are served again", func() bool {
		status, header := act("get")
		return status == 200 && header.Get("Agentgate-Receipt") != ""
	})
	if took := passed(); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := strings.Count(said.String(), "there is no room on the disk for receipts"); n > 3 {
		t.Errorf("said %d times", n)
	}
	if n := strings.Count(said.String(), `"refused"`); n > 0 {
		t.Errorf("%d lines of single calls", n)
	}
	vkey := s.receipts.VerifierKey()
	stopped = true
	s.stop(context.Background())
	report, err := receipts.Verify(data, vkey, s.receipts.Checkpoint(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"refuse": 0, "allow": 4}[mode]; report.Verdict.ExitCode() != want || report.InFlight != 0 || report.Unknown != 0 {
		t.Errorf("verify: exit %d: %s; %d without an outcome", report.Verdict.ExitCode(), report.Why, report.InFlight)
	}
	ids, counted := map[string]bool{}, int64(0)
	if err := receipts.Scan(filepath.Join(data, "receipts"), func(st receipts.Stored) error {
		switch st.Record.Kind {
		case receipts.KindIntent, receipts.KindOutcome, receipts.KindRefusal:
			ids[st.Record.ID] = true
		case receipts.KindGap, receipts.KindSummary:
			counted += int64(st.Record.Count)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d answers: %d with a receipt, %d refused, %d without; the log has %d receipts and counts %d", answers.Load(), named.Load(), refused.Load(), bare.Load(), len(ids), counted)
	if int64(len(ids))+counted != answers.Load() || int64(len(ids)) != named.Load() || counted != refused.Load()+bare.Load() {
		t.Errorf("the books do not match")
	}
	if refused.Load()+bare.Load() < 100 || mode == "refuse" && bare.Load() > 0 || mode == "allow" && refused.Load() > 0 {
		t.Errorf("%d refused, %d without a receipt", refused.Load(), bare.Load())
	}
}
