package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"agentgw/internal/websocket"
)

// upgrades reports whether a request asks for a WebSocket. HTTP/2 has another way to ask
// (RFC 8441), which is not offered, and no connection that could be upgraded.
func upgrades(r *http.Request) bool { return r.ProtoMajor == 1 && websocket.Asked(r.Header) }

// upgrade reports whether the call asks for a WebSocket.
func (call *Call) upgrade() bool { return call.proxied != nil && call.proxied.upgrade }

// checkUpgrade is the part of step 3 that is about a WebSocket. Of a service that the key
// may not call it says nothing: that is for step 4.
func checkUpgrade(call *Call, out *answer) *Error {
	r, h := call.In, call.In.Header
	switch service := call.view.registry.Services[call.proxied.service]; {
	case service != nil && !service.WebSocket && call.Key.AllowsService(service.Name):
		return refuse(BadRequest, "%s takes no WebSocket (services.%s.websocket)", service.Name, service.Name)
	case r.Method != http.MethodGet || !r.ProtoAtLeast(1, 1) || r.ContentLength != 0:
		return refuse(BadRequest, "an upgrade to WebSocket is a GET of HTTP/1.1 without a body")
	case len(h["Sec-Websocket-Version"]) != 1 || h["Sec-Websocket-Version"][0] != "13":
		out.Header()["Sec-Websocket-Version"] = []string{"13"}
		out.Header()["Upgrade"] = []string{"websocket"}
		e := refuse(BadRequest, "Sec-WebSocket-Version has to be 13")
		e.Status = http.StatusUpgradeRequired // RFC 6455, section 4.4
		return e
	case len(h["Sec-Websocket-Key"]) != 1 || !websocket.ValidKey(h["Sec-Websocket-Key"][0]):
		return refuse(BadRequest, "Sec-WebSocket-Key has to be 16 bytes in base64, once")
	case !ownOrigin(h["Origin"], r.Host):
		return refuse(ScopeDenied, "a page of another origin opens no WebSocket here")
	}
	return nil
}

// ownOrigin reports whether an upgrade may come from there: from no page of a browser, or
// from one that is the gateway's own by the name that the request came under. A browser
// asks nobody before it upgrades, and says whose page wanted it (RFC 6455, section 10.2).
func ownOrigin(origins []string, host string) bool {
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	if len(origins) > 1 || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Host == "" {
		return false
	}
	port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	return strings.EqualFold(strings.TrimSuffix(u.Host, port), strings.TrimSuffix(host, port))
}

// forUpgrade has the header of a request ask for the upgrade. No extension is asked for, as
// what it would do to frames the gateway could not follow; and the Origin, which has been
// judged, is that of the gateway and not of the service.
func forUpgrade(h http.Header) {
	delete(h, "Sec-Websocket-Extensions")
	delete(h, "Origin")
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
}

// unfitUpgrade says why a 101 is none that an agent may get, or nil.
func unfitUpgrade(res *http.Response, call *Call) *Error {
	h := call.In.Header
	why := websocket.Answered(res.Header, h["Sec-Websocket-Key"][0], h["Sec-Websocket-Protocol"])
	if _, ok := res.Body.(io.ReadWriteCloser); !ok && why == "" {
		why = "is not one that a connection follows"
	}
	if why == "" {
		return nil
	}
	return &Error{Code: UpstreamUnreachable, Message: fmt.Sprintf("%s answered the upgrade with a 101 that %s", call.Act.Service, why), Ran: true}
}

// switched is the answer to an upgrade, as it goes out on the connection that was taken
// over: what may pass of the service's header, and the gateway's own.
func switched(own, header http.Header) []byte {
	oneAuthor(own, header, http.StatusSwitchingProtocols)
	pass(own, header)
	for _, name := range []string{"Content-Length", "Content-Type", "Sec-Websocket-Extensions"} {
		delete(own, name)
	}
	own["Connection"], own["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = own.Write(&b) // into memory
	b.WriteString("\r\n")
	return []byte(b.String())
}
