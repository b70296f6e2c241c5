package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// errGuarded is a dial that the guard refused.
var errGuarded = errors.New("the address is private, loopback or link-local and the service does not say allow_private")

// special holds what netip's own predicates call global: addresses that lead
// into a network of somebody's own, or carry an IPv4 address inside (RFC 6890
// and the IANA registries of special-purpose addresses).
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
	"172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2002::/16",
	"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// Guarded reports whether the dial guard refuses addr, for a service that does
// not say allow_private.
func Guarded(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, p := range special {
		if p.Contains(addr) {
			return true
		}
	}
	return !addr.IsValid()
}

// guardDial runs after name resolution, on the very address about to be
// dialled: a name that was public when it was looked at and private when it is
// used is refused all the same.
func guardDial(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial guard: %w", err)
	}
	if Guarded(ap.Addr()) {
		return errGuarded
	}
	return nil
}

// dialTimeout is how long a connection may take to be made.
const dialTimeout = 10 * time.Second

// newDialer returns what dials where the guard lets it, and everywhere where allowPrivate.
func newDialer(allowPrivate bool) *net.Dialer {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	if !allowPrivate {
		dialer.Control = guardDial
	}
	return dialer
}

// NewTransport returns a transport that dials what the guard lets it, and
// everything where allowPrivate: for services, and for whatever else the gateway
// calls by an address of the registry. It follows no redirect, as no transport does.
// Of services there are two: were there one, a service without allow_private could
// be handed a pooled connection that another service was allowed to open.
func NewTransport(allowPrivate bool) *http.Transport {
	return &http.Transport{
		Proxy:                  noProxy,
		DialContext:            newDialer(allowPrivate).DialContext,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // what the upstream sent is what the agent gets
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        60 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: maxAnswerHeader,
		ExpectContinueTimeout:  time.Second,
		// A connection keeps both for as long as it is open, and a stream its connection:
		// half of what they would be is a twentieth of what an idle stream costs. What is
		// larger than they are does not pass through them.
		ReadBufferSize:  2 << 10,
		WriteBufferSize: 2 << 10,
	}
}

// newH2CTransport is NewTransport for services that speak HTTP/2 in clear text, and are
// spoken to so from the first byte (RFC 9113, section 3.3): of no others, as one that
// does not know it may take the preface for anything.
func newH2CTransport(allowPrivate bool) *http.Transport {
	t := NewTransport(allowPrivate)
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}
