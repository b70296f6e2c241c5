package gateway_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"agentgw/internal/identity"
)

// TestOldViewsAreFreed: what decided a call is kept for as long as the call runs,
// and then no longer, however many views came and went meanwhile.
func TestOldViewsAreFreed(t *testing.T) {
	up := newHeldStreams()
	w := newWorld(t, up.serve, wide("k"))
	key := w.keys["k"]
	keys := func() *identity.Key {
		k := wide("k") // one of its own for each view, as a reload has it
		k.Digest, _ = identity.ParseKey(key)
		return k
	}
	freed := func(watch func() bool) func() bool {
		return func() bool { runtime.GC(); return !watch() }
	}

	w.use(worldRegistry, keys())
	unused := w.gateway.WatchView()
	w.use(worldRegistry, keys())
	used := w.gateway.WatchView()
	for range 10 {
		w.act("k", plainCall("tools", "")).want(t, "a call", 200, "", "")
	}
	finish := w.hold(up, "k", streamCall("tools", ""))
	var between []func() bool
	for i := range drills(20, 1000) {
		w.use(worldRegistry+fmt.Sprintf("  more%d: {base_url: \"%%[1]s\"}\n", i), keys())
		between = append(between, w.gateway.WatchView())
		w.act("k", plainCall("tools", "")).want(t, "a call", 200, "", "")
	}
	w.use(worldRegistry, keys())
	w.server.Client().Transport.(*http.Transport).CloseIdleConnections()
	eventually(t, "a view that nothing was decided by is freed", freed(unused))
	for _, watch := range between {
		eventually(t, "so is one whose calls have ended", freed(watch))
	}
	if !used() {
		t.Error("the view of the stream is gone while it runs")
	}
	finish()
	w.server.Client().Transport.(*http.Transport).CloseIdleConnections()
	eventually(t, "and that of the stream when it has ended", freed(used))
	if !w.gateway.WatchView()() {
		t.Error("the view in force is gone")
	}
}
