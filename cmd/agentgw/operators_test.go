package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// raw sends a request as it stands and returns the status and what else came.
func raw(t *testing.T, to net.Addr, request string) (status int, answer string) {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, _ := io.ReadAll(res.Body) // a CONNECT's is not over
	return res.StatusCode, string(body)
}

// TestOperatorsAreNotAtTheAgentsAddress, however the path is spelled, whatever
// host is named, and with the operators' own token in hand or a key for all.
func TestOperatorsAreNotAtTheAgentsAddress(t *testing.T) {
	m := measure(t, measuredUpstream(nil), measuredRegistry)
	operators, agents := m.operatorsListener.Addr(), m.agentsListener.Addr()
	paths := []string{"/metrics", "/livez", "/readyz", "/healthz"}
	for _, path := range []string{"/admin/v1/config", "/admin/v1/tenants", "/admin/v1/receipts", "/admin/v1/limits/explain?key=bot&service=tools&action=get"} {
		paths = append(paths, path, "/"+path, "/."+path, "/v1/.."+path, "/v1/..%2f"+path[1:], "/..%2f"+path[1:], "/%2e%2e"+path, "/v1/%2e%2e"+path, "/v1%2f.."+path,
			"/v1/..;"+path, "/v1/..%5c"+path[1:], `/v1/..\`+path[1:], "/%61dmin"+path[len("/admin"):], "/ADMIN"+path[len("/admin"):], "/v1/services/..%2f.."+path,
			"/v1/services/.."+path, "/proxy/tools/../.."+path, "/proxy/tools/..%2f..%2f"+path[1:], "/tools/..%2f"+path[1:], path+"%00", path+"/", path+"#x")
	}
	targets := []string{}
	for _, path := range paths {
		targets = append(targets, path, "http://"+operators.String()+path, "http://"+agents.String()+path, "https://"+operators.String()+path)
	}
	asked, full := 0, os.Getenv("DRILLS") == "full"
	for _, method := range []string{"GET", "POST"} {
		for _, target := range targets {
			for _, auth := range []string{"", "Authorization: Bearer " + m.adminToken.Reveal() + "\r\n", "Authorization: Bearer " + m.keys["bot"] + "\r\n",
				"Agentgate-Key: " + m.keys["bot"] + "\r\nAuthorization: Bearer " + m.adminToken.Reveal() + "\r\n"} {
				for _, host := range []string{operators.String(), agents.String()} {
					if asked++; !full && (asked+asked/8)%8 != 0 { // one of the eight, in turn
						continue
					}
					status, answer := raw(t, agents, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\nContent-Length: 0\r\n"+auth+"\r\n")
					if status < 400 || status >= 500 {
						t.Errorf("%s %s, %q: %d %s", method, target, auth, status, answer)
					}
					for _, theirs := range []string{"agentgate_", "charged_to", `"settings"`, "in_flight", "go_goroutines"} {
						if strings.Contains(answer, theirs) {
							t.Errorf("%s %s, %q: %d %s", method, target, auth, status, answer)
						}
					}
				}
			}
		}
	}
	for _, request := range []string{
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"CONNECT " + operators.String() + " HTTP/1.1\r\nHost: " + operators.String() + "\r\nConnection: close\r\nProxy-Authorization: Bearer " + m.keys["bot"] + "\r\n\r\n",
	} {
		if status, answer := raw(t, agents, request); status < 400 {
			t.Errorf("%q: %d %s", request, status, answer)
		}
	}
	// And the agents' side is not at the operators'.
	if status, _ := raw(t, operators, "POST /v1/act HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\nAgentgate-Key: "+m.keys["bot"]+"\r\n\r\n"); status != http.StatusNotFound {
		t.Errorf("POST /v1/act at the operators' address: %d", status)
	}
	if asked < 2000 {
		t.Errorf("%d requests", asked)
	}
	if strings.Contains(m.log.String(), "panicked") {
		t.Error(m.log.String())
	}
}

// TestOnlyTheTokenLetsIn: nothing else, and nothing that looks like it, opens any
// of the operators' API; the token does, once and alone in its header.
func TestOnlyTheTokenLetsIn(t *testing.T) {
	m := measure(t, measuredUpstream(nil), measuredRegistry)
	token := m.adminToken.Reveal()
	for _, c := range []struct {
		headers string
		want    int
	}{
		{"", 401},
		{"Authorization:", 401},
		{"Authorization: ", 401},
		{"Authorization: Bearer", 401},
		{"Authorization: Bearer ", 401},
		{"Authorization: Bearer \t ", 401},
		{"Authorization: Bearer null", 401},
		{"Authorization: Bearer changeme", 401},
		{"Authorization: " + token, 401},
		{"Authorization: Basic " + token, 401},
		{"Authorization: Bearer" + token, 401},
		{"Authorization: Bearer " + token[:len(token)-1], 401},
		{"Authorization: Bearer " + token + "x", 401},
		{"Authorization: Bearer " + token + ",", 401},
		{"Authorization: Bearer " + strings.ToLower(token), 401},
		{"Authorization: Bearer " + token + " " + token, 401},
		{"Authorization: Bearer " + m.keys["bot"], 401},
		{"Authorization: Bearer " + token + "\r\nAuthorization: Bearer " + token, 401},
		{"Authorization: Bearer x\r\nAuthorization: Bearer " + token, 401},
		{"X-Api-Key: " + token, 401},
		{"Agentgate-Key: " + token, 401},
		{"Cookie: token=" + token, 401},
		{"Proxy-Authorization: Bearer " + token, 401},
		{"Authorization: Bearer " + token, 200},
		{"authorization: bEARER " + token, 200},
		{"Authorization: Bearer   " + token + "  ", 200},
	} {
		headers := c.headers + "\r\n"
		if c.headers == "" {
			headers = ""
		}
		for _, path := range []string{"/admin/v1/config", "/admin/v1/tenants", "/admin/v1/receipts", "/admin/v1/limits/explain?key=bot&service=tools&action=get"} {
			status, answer := raw(t, m.operatorsListener.Addr(), "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+headers+"\r\n")
			if status != c.want || (status == 401) != strings.Contains(answer, "unauthenticated") {
				t.Errorf("%q %s: %d %s", c.headers, path, status, answer)
			}
		}
	}
	for _, path := range []string{"/admin/v1/tenants/tenant:acme/block", "/admin/v1/reload", "/admin/v1/tenants/tenant:acme/unblock", "/admin/v1/x"} {
		if status, _ := raw(t, m.operatorsListener.Addr(), "POST "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"); status != 401 {
			t.Errorf("POST %s without a token: %d", path, status)
		}
	}
	if len(m.limiter.BlockedTenants(0)) > 0 {
		t.Error("somebody was blocked")
	}
}

// TestOperatorsListenOnLoopback by default: from another address of this machine
// nobody gets to them; and where they listen on every address a token that was
// made is asked for there as well.
func TestOperatorsListenOnLoopback(t *testing.T) {
	outside := ownAddress(t)
	dial := func(m *measured) error {
		_, port, err := net.SplitHostPort(m.operatorsListener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.DialTimeout("tcp", net.JoinHostPort(outside, port), 2*time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if dial(measure(t, measuredUpstream(nil), measuredRegistry)) == nil {
		t.Errorf("the operators' address is reached at %s", outside)
	}
	for _, wide := range []string{"0.0.0.0:0", "[::]:0", ":0", net.JoinHostPort(outside, "0")} {
		m := measureAt(t, wide)
		if m == nil {
			continue // no IPv6 here
		}
		if err := dial(m); err != nil {
			t.Errorf("%s: %v", wide, err)
			continue
		}
		_, port, _ := net.SplitHostPort(m.operatorsListener.Addr().String())
		for header, want := range map[string]int{"": 401, "Authorization: Bearer \r\n": 401, "Authorization: Bearer " + m.adminToken.Reveal() + "\r\n": 200} {
			to, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(outside, port))
			if err != nil {
				t.Fatal(err)
			}
			if status, _ := raw(t, to, "GET /admin/v1/config HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+header+"\r\n"); status != want {
				t.Errorf("%s, %q: %d, want %d", wide, header, status, want)
			}
		}
	}
}

// ownAddress is one of this machine that is not of loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// measureAt is measure with the operators at that address, or nil where there is
// no such address.
func measureAt(t *testing.T, address string) *measured {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil
	}
	_ = l.Close()
	return measure(t, measuredUpstream(nil), measuredRegistry, "--admin-listen", address)
}
