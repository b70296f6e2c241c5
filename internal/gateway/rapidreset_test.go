package gateway_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"agentgw/internal/config"
	"agentgw/internal/receipts"
)

// TestHTTP2RapidReset: a client that opens streams and resets each at once has no more
// calls at the service than its tenant may, and all their slots come back
// (CVE-2023-39325, CVE-2023-44487).
func TestHTTP2RapidReset(t *testing.T) {
	const slots = 4
	var now, peak atomic.Int64
	w := uploadWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			return
		}
		for n, was := now.Add(1), peak.Load(); n > was && !peak.CompareAndSwap(was, n); was = peak.Load() {
		}
		<-r.Context().Done()
		now.Add(-1)
	}, func(s *config.Settings) { s.TenantMaxInflight = slots }, tireless("k"), tireless("other"))
	address, pool := overHTTP2(t, w)
	c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: "example.com", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	frames := http2.NewFramer(c, c)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0)
	for _, f := range []field{{":method", "GET"}, {":scheme", "https"}, {":path", "/proxy/any/x"}, {":authority", "g"}, {"agentgate-key", w.keys["k"]}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f.name, Value: f.value, Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	err = frames.WriteSettings()
	id := uint32(1)
	begin := func() {
		err = errors.Join(err, frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
		id += 2
	}
	idle := func() bool { return w.inFlight("key:k") == 0 && now.Load() == 0 }
	// Streams that are reset when as many as may have come as far as the service.
	const round = 50
	for range drills(5, 100) {
		for range round {
			begin()
		}
		within(t, 20*time.Second, "the tenant has all its slots", func() bool { return now.Load() == slots })
		for i := range uint32(round) {
			err = errors.Join(err, frames.WriteRSTStream(id-2*(i+1), http2.ErrCodeCancel))
		}
		if err != nil {
			t.Fatal(err)
		}
		within(t, 20*time.Second, "all slots are free", idle)
		w.clock.Advance(time.Minute) // no rate is in the way
	}
	// What is reset is over for the gateway before the service has seen its end: from here
	// on the service may count more.
	if n := peak.Load(); n != slots {
		t.Errorf("%d calls at once, and %d may be", n, slots)
	}
	// And at once.
	sent, served := drills(500, 20_000), 0
	for i := 0; i < sent && err == nil; i++ { // until the server has had enough
		if i%(sent/20) == sent/40 { // somebody else, in the middle of it
			if got := w.relayedBy("other", "GET", "any/other", ""); got.status != 200 {
				t.Errorf("another tenant: %d %s", got.status, got.body)
			}
			served++
		}
		begin()
		err = errors.Join(err, frames.WriteRSTStream(id-2, http2.ErrCodeCancel))
	}
	over := time.Now()
	within(t, 20*time.Second, "all slots are free", idle)
	t.Logf("%d streams were reset at once, %d calls of another tenant were served meanwhile, and %v later all slots were free", sent, served, time.Since(over).Round(time.Millisecond))
	if served < 20 {
		t.Errorf("%d calls of another tenant were served, of 20", served)
	}
	within(t, 20*time.Second, "all calls have an outcome", func() bool { // which is written when the slot is free
		open := map[string]bool{}
		for _, r := range w.ledger.all() {
			switch r.Kind {
			case receipts.KindIntent:
				open[r.ID] = true
			case receipts.KindOutcome:
				delete(open, r.ID)
			}
		}
		return len(open) == 0
	})
}

// TestHTTP2ContinuationFlood: a head without an end ends its connection after a bounded
// number of bytes, and others are served (CVE-2023-45288).
func TestHTTP2ContinuationFlood(t *testing.T) {
	w := uploadWorld(t, func(http.ResponseWriter, *http.Request) {}, nil)
	address, pool := overHTTP2(t, w)
	for name, size := range map[string]int{"of 1 KiB": 1 << 10, "of 16 KiB": 16 << 10} {
		t.Run(name, func(t *testing.T) {
			c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: "example.com", NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			ended := make(chan struct{})
			go func() { defer close(ended); _, _ = io.Copy(io.Discard, c) }()
			frames := http2.NewFramer(c, c)
			var one bytes.Buffer
			encoder := hpack.NewEncoder(&one)
			encoder.SetMaxDynamicTableSize(0)
			if err := encoder.WriteField(hpack.HeaderField{Name: "x", Value: string(bytes.Repeat([]byte("y"), 1<<10)), Sensitive: true}); err != nil {
				t.Fatal(err)
			}
			block := bytes.Repeat(one.Bytes(), 1+size/one.Len())[:size]
			_, err = io.WriteString(c, http2.ClientPreface)
			err = errors.Join(err, frames.WriteSettings(), frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: one.Bytes(), EndStream: true}))
			sent := 0
			for ; err == nil && sent < 100_000; sent++ {
				err = frames.WriteContinuation(1, false, block)
			}
			if err == nil {
				t.Fatalf("%d frames were taken", sent)
			}
			<-ended
			t.Logf("it ended after at most %d frames", sent)
			if got := w.relayedBy("k", "GET", "any/x", ""); got.status != 200 {
				t.Errorf("somebody else: %d %s", got.status, got.body)
			}
		})
	}
}

// TestAServiceThatSettlesForNoFrames: a service whose HTTP/2 would have the gateway send
// frames of no bytes for ever is a refusal (CVE-2026-33814).
func TestAServiceThatSettlesForNoFrames(t *testing.T) {
	certificate, pool := certificateFor(t, nil, net.IPv4(127, 0, 0, 1))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	var services sync.WaitGroup
	t.Cleanup(services.Wait)
	t.Cleanup(func() { _ = l.Close() })
	services.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			services.Go(func() {
				defer func() { _ = c.Close() }()
				_ = http2.NewFramer(c, c).WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0})
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	g := setup{registry: fmt.Sprintf("version: 1\nservices: {any: {base_url: \"https://%s\", allow_private: true, passthrough: true}}\n", l.Addr())}.world(t, hello, tireless("k"))
	g.gateway.Trust(pool)
	for _, body := range []string{"", "x", string(make([]byte, 100_000))} {
		got := g.relayedBy("k", "POST", "any/x", body)
		if got.status != 502 || got.code != "upstream_unreachable" {
			t.Errorf("%d bytes: %d %s", len(body), got.status, got.body)
		}
	}
	if n := g.inFlight("key:k"); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}
