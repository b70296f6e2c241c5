package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"weak"
)

// Trust makes the gateway accept the certificates of pool alone, for services
// that allow private addresses. It is called before the first call.
func (g *Gateway) Trust(pool *x509.CertPool) {
	g.private.TLSClientConfig = &tls.Config{RootCAs: pool}
}

// WatchView returns what reports whether the view that is in force now is still
// in memory. It does not keep it there.
func (g *Gateway) WatchView() func() bool {
	v, of := weak.Make(g.current.Load()), weak.Make(g.current.Load().registry)
	return func() bool { return v.Value() != nil || of.Value() != nil }
}

// WaitForAgents is how many calls wait for more of their agents' requests.
func (g *Gateway) WaitForAgents() (n int) {
	g.running.each(func(r *running) {
		r.patience.mu.Lock()
		defer r.patience.mu.Unlock()
		if r.patience.held {
			n++
		}
	})
	return n
}

// Running is how many calls are under way to a service, or wait for a slot.
func (g *Gateway) Running() (n int) {
	g.running.each(func(*running) { n++ })
	return n
}

// MidMessage is how many streams could not be ended by a drain where they stand.
func (g *Gateway) MidMessage() (n int) {
	g.running.each(func(r *running) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.isStream && !r.border {
			n++
		}
	})
	return n
}
