package gateway_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentgw/internal/delegation"
	"agentgw/internal/explain"
	"agentgw/internal/hangup"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

// TestATunnelByDelegation leads to the hosts that it grants, says so in its receipt, and
// ends with it.
func TestATunnelByDelegation(t *testing.T) {
	to, elsewhere := far(t, echoes), far(t, echoes)
	w := delegated(t, hello, func(s *setup) {
		s.registry = delegatedRegistry + fmt.Sprintf("tunnels: {allow: [%q, %q], allow_private: true}\n", to, elsewhere)
	})
	token, id := w.issue(func(g *delegation.Grant) {
		g.Details = []delegation.Detail{{Type: delegation.DetailType, Service: "tunnels", Actions: []string{to}}}
	})
	header := []string{w.withKey("planner"), "Agentgate-On-Behalf-Of: alice", "Agentgate-Delegation: " + token}
	w.connect(elsewhere, "", header...).refused(403, "delegation_invalid", "")
	c := w.connect(to, "", header...)
	if c.res.StatusCode != 200 {
		t.Fatal(c.body)
	}
	c.say("hi")
	c.hear("hi")
	w.trust(delegation.Revocations{IDs: map[string]bool{id: true}})
	if rest, err := io.ReadAll(c); err == nil {
		t.Errorf("%q and a clean end", rest)
	}
	if r := w.outcomes(1)[0]; r.Ending != receipts.Revoked || r.Principal != "alice" || len(r.Chain) != 1 || !strings.Contains(r.Chain[0], id) || r.In != 2 {
		t.Errorf("%+v", r)
	}
	short, _ := w.issue(func(g *delegation.Grant) {
		g.Until = w.clock.Now().Add(time.Minute)
		g.Details = []delegation.Detail{{Type: delegation.DetailType, Service: "tunnels", Actions: []string{to}}}
	})
	header[2] = "Agentgate-Delegation: " + short
	if c = w.connect(to, "", header...); c.res.StatusCode != 200 {
		t.Fatal(c.body)
	}
	w.clock.Advance(time.Minute)
	if r := w.outcomes(2)[1]; r.Ending != receipts.Revoked {
		t.Errorf("when the delegation is over: %+v", r)
	}
}

// TestExplainTunnels: who may open which, and what is left of his bytes.
func TestExplainTunnels(t *testing.T) {
	to := far(t, echoes)
	section := fmt.Sprintf("{allow: [%q, \"*.example.org:443\"], allow_private: true, bytes_per_window: 1000, window: 1h}", to)
	key := &identity.Key{ID: "k", Services: []string{"tunnels"}, Actions: []string{"tunnels.127.*", "tunnels.a.*"}, Users: []string{"*"}}
	w := tunnelWorld(t, section, key)
	x := w.explainer(worldRegistry + "tunnels: " + section + "\n")
	x.Running = w.gateway
	c := w.open(to, "k")
	c.say("0123456789")
	c.hear("0123456789")
	for action, want := range map[string]string{
		to: "", "A.Example.org:443": "", "b.example.org:443": "scope_denied the key's actions are", "example.org:443": "scope_denied tunnels.allow has", "example.org": "bad_request",
	} {
		a, err := x.Explain(explain.Question{Key: "k", Service: "tunnels", Action: action}, key, "", w.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		if want != "" {
			code, why, _ := strings.Cut(want, " ")
			if a.Refused == nil || a.Refused.Code != code || !strings.Contains(a.Refused.Why, why) {
				t.Errorf("%s: %+v", action, a.Refused)
			}
			continue
		}
		last := a.Limits[len(a.Limits)-1]
		if a.Refused != nil || last.Limit != "tunnel_bytes" || last.ChargedTo != "key:k" || last.Bytes != 1000 || last.Window != "1h" || last.Level == nil || *last.Level.Remaining != 980 {
			t.Errorf("%s: %+v %+v", action, a.Refused, last)
		}
	}
	a, err := x.Explain(explain.Question{Key: "k", Service: "tunnels", Action: to}, &identity.Key{ID: "k", Services: []string{"tools"}, Users: []string{"*"}}, "", w.clock.Now())
	if err != nil || a.Refused == nil || !strings.Contains(a.Refused.Why, "the key's services are") {
		t.Errorf("%+v %v", a.Refused, err)
	}
}

// TestATunnelOverTheListenerOfTLS: as over the gateway's own listener, which reads ahead of
// net/http, ends are passed on and what is cut is seen to be.
func TestATunnelOverTheListenerOfTLS(t *testing.T) {
	to := far(t, echoes)
	w := tunnelWorld(t, fmt.Sprintf("{allow: [%q], allow_private: true}", to), wide("k"))
	w.front("HTTP/2") // has a certificate
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w.gateway.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_ = server.Serve(hangup.TLSListener(l, &tls.Config{Certificates: w.server.TLS.Certificates, MinVersion: tls.VersionTLS12}, 10*time.Second))
	}()
	t.Cleanup(func() { _ = server.Close() })
	open := func() (*through, *tls.Conn) {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\nearly", to, to, w.withKey("k")); err != nil {
			t.Fatal(err)
		}
		c := (&through{Conn: conn, t: t}).answered()
		c.hear("early")
		return c, conn
	}
	c, conn := open()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	if r := w.outcomes(1)[0]; r.Ending != receipts.Complete || r.In != 5 || r.Out != 5 {
		t.Errorf("%+v", r)
	}
	c, _ = open()
	w.gateway.Cut()
	if rest, err := io.ReadAll(c); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%q and a clean end", rest)
	}
}
