package websocket

import (
	"crypto/sha1" //nolint:gosec // what RFC 6455 wants, and nothing that has to be secret
	"encoding/base64"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// guid is what a server shows by that it speaks WebSocket (RFC 6455, section 1.3).
const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// ValidKey reports whether a Sec-WebSocket-Key is 16 bytes in base64.
func ValidKey(key string) bool {
	raw, err := base64.StdEncoding.Strict().DecodeString(key)
	return err == nil && len(raw) == 16 && len(key) == 24 // the decoder passes over line ends
}

// Accept is the Sec-WebSocket-Accept that answers a key.
func Accept(key string) string {
	sum := sha1.Sum([]byte(key + guid)) //nolint:gosec // see above
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Asked reports whether a request is one for an upgrade to WebSocket, well formed or not.
func Asked(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") && httpguts.HeaderValuesContainsToken(h["Upgrade"], "websocket")
}

// Answered says what is wrong with the header of a 101 that answers a request with that
// key and these subprotocols, or "" (RFC 6455, section 4.1). An extension is always
// wrong: none was asked for.
func Answered(h http.Header, key string, protocols []string) string {
	chosen := h["Sec-Websocket-Protocol"]
	switch {
	case len(h["Upgrade"]) != 1 || !strings.EqualFold(h["Upgrade"][0], "websocket"), !httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade"):
		return "does not say that it upgrades to WebSocket"
	case len(h["Sec-Websocket-Accept"]) != 1 || h["Sec-Websocket-Accept"][0] != Accept(key):
		return "has not the Sec-WebSocket-Accept of this key"
	case len(h["Sec-Websocket-Extensions"]) > 0:
		return "has an extension, and none was asked for"
	case len(chosen) > 1 || len(chosen) == 1 && !offered(protocols, chosen[0]):
		return "has a subprotocol that was not asked for"
	}
	return ""
}

// offered reports whether a subprotocol is one of a list in several lines. They differ by
// case.
func offered(protocols []string, chosen string) bool {
	for _, line := range protocols {
		for _, p := range strings.Split(line, ",") {
			if strings.Trim(p, " \t") == chosen && chosen != "" {
				return true
			}
		}
	}
	return false
}
