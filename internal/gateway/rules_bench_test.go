package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"agentgw/internal/registry"
	"agentgw/internal/rules"
)

// BenchmarkRules is what so many rules add to admitting a call and telling its
// caller: their expressions, their counts, their fields.
func BenchmarkRules(b *testing.B) {
	const each = `  - {name: r%d, key: client_ip, when: "service == 'tools' && org == null", window: 1h, max: 999999999999999}` + "\n"
	for _, n := range []int{0, 1, 5} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			g, tokens := controlled(b, 1, "https://tools.example", nil, nil)
			var file strings.Builder
			file.WriteString("rules:\n  []\n")
			if n > 0 {
				file.Reset()
				file.WriteString("rules:\n")
			}
			for i := range n {
				fmt.Fprintf(&file, each, i)
			}
			snapshot, err := registry.Parse("registry.yaml", []byte(file.String()))
			if err != nil {
				b.Fatal(err)
			}
			set, err := rules.Compile(snapshot)
			if err != nil {
				b.Fatal(err)
			}
			v := *g.current.Load()
			v.rules, v.windows = set, newWindows(set)
			g.current.Store(&v)
			at := &attempt{g: g}
			service := v.registry.Services["tools"]
			action := service.Actions["get"]
			in := httptest.NewRequest(http.MethodPost, "/v1/act", nil)
			in.Header.Set("Authorization", tokens[0])
			header := http.Header{}
			runtime.GC() // of what was made above
			b.ReportAllocs()
			b.ResetTimer()
			from := processor(b)
			for b.Loop() {
				clear(header)
				call := Call{In: in, Address: netip.MustParseAddr("203.0.113.7"), view: g.current.Load(), Act: act{Service: "tools", Action: "get"}}
				out := answer{ResponseWriter: headerOnly{header}}
				if err := g.identify(&call, at); err != nil {
					b.Fatal(err)
				}
				charge, _ := g.chargeKey(&call, &out)
				ticket, refused := g.admit(&call, service, action, charge, &out, at)
				if refused != nil {
					b.Fatal(refused)
				}
				ticket.Release()
			}
			b.ReportMetric(float64((processor(b)-from).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}
