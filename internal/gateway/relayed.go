package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// kept are the answer headers that never reach an agent: they carry credentials
// or sessions of the service, or speak in the gateway's name.
func kept(name string) bool {
	switch name {
	case "Set-Cookie", "Set-Cookie2", "Authorization", "Proxy-Authenticate", "Authentication-Info",
		"Proxy-Authentication-Info", "Www-Authenticate", "X-Request-Id":
		return true
	}
	return strings.HasPrefix(name, "Agentgate-")
}

// hopByHop are the headers that speak of one connection (RFC 9110, section
// 7.6.1), those among them that nobody names in Connection any more.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// pass puts on to what reaches the agent of an answer's header.
func pass(to, header http.Header) {
	connection := header["Connection"]
	for name, values := range header {
		if !hopByHop(name) && !kept(name) && (connection == nil || !httpguts.HeaderValuesContainsToken(connection, name)) {
			to[name] = values
		}
	}
}

// oneAuthor leaves each of the RateLimit fields to one author, own or the
// upstream: both are lists, and two lists in one field are one, in which nobody
// could tell whose an item is, and which an older syntax of the upstream's would
// spoil as a whole. The gateway's fields stand, but for an upstream's own 429,
// which passes as it is.
func oneAuthor(own, upstream http.Header, status int) {
	out := upstream
	if status == http.StatusTooManyRequests && (upstream["Ratelimit"] != nil || upstream["Ratelimit-Policy"] != nil) {
		out = own
	}
	delete(out, "Ratelimit")
	delete(out, "Ratelimit-Policy")
}

// keepTrailer takes out of a trailer what does not reach the agent, and those
// fields that have no place in one (RFC 9110, section 6.5.1): whoever merges it
// into the header would take a length or a session from behind the body.
func keepTrailer(h http.Header) {
	for name := range h {
		if kept(name) || !httpguts.ValidTrailerHeader(name) {
			delete(h, name)
		}
	}
}

// maxAnswerHeader bounds the header of an upstream's answer, in bytes.
const maxAnswerHeader = 256 << 10

// headerFault says what is wrong with an answer's header that the transport did
// not take for its size, or "". net/http has no error of its own for that, only
// words; over HTTP/2 it may stop decoding before it can know.
func headerFault(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "server response headers exceeded"),
		strings.Contains(text, "response header list larger than advertised limit"):
		return fmt.Sprintf("a header larger than %d KiB, which is not relayed", maxAnswerHeader>>10)
	case strings.Contains(text, "connection error: COMPRESSION_ERROR"), strings.Contains(text, "connection error: PROTOCOL_ERROR"):
		return fmt.Sprintf("a header larger than %d KiB, or with what is not HTTP/2", maxAnswerHeader>>10)
	}
	return ""
}
