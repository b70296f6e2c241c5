package gateway_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
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
		for n, was := now.Add(1), peak.Load(); n > was && !peak.CompareAndSwap(was, n); was = peak.Load() {
		}
		<-r.Context().Done()
		now.Add(-1)
	}, func(s *config.Settings) { s.TenantMaxInflight = slots }, tireless("k"))
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
	sent := drills(500, 20_000)
	for i := range sent {
		id := uint32(2*i + 1)
		err = errors.Join(err, frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}),
			frames.WriteRSTStream(id, http2.ErrCodeCancel))
		if err != nil {
			break // the server has had enough
		}
	}
	within(t, 20*time.Second, "all slots are free", func() bool { return w.inFlight("key:k") == 0 && now.Load() == 0 })
	if n := peak.Load(); n > slots {
		t.Errorf("%d calls at once, where %d may be", n, slots)
	}
	open := map[string]bool{}
	for _, r := range w.ledger.all() {
		switch r.Kind {
		case receipts.KindIntent:
			open[r.ID] = true
		case receipts.KindOutcome:
			delete(open, r.ID)
		}
	}
	if len(open) > 0 {
		t.Error(fmt.Sprint(len(open), " calls have no outcome"))
	}
}
