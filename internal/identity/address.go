package identity

import (
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the address ranges whose forwarding headers are believed. Empty
// or nil: nobody's. A range of IPv4 addresses is given as one, and not as
// ::ffff:192.0.2.0/120, which holds none: addresses are compared without that.
type Proxies []netip.Prefix

// LimitPrefix returns what an address is limited as: an IPv6 address as its
// /64, since one host commands all of those, an IPv4 address as itself. The
// zero prefix stands for the zero address.
func LimitPrefix(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64) // 64 bits always fit
		return p
	}
	if !a.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// ClientAddr returns the address of the client whose request came from the peer
// remoteAddr (host:port, as in http.Request) with the headers h: the right-most
// hop that is not a trusted proxy, or the left-most where all are. Only a
// trusted peer's headers are read, and each hop is believed only as far as the
// hop that reported it, so nothing that a client writes to the left counts.
//
// An IPv4 address in IPv6 clothing is the IPv4 address. Where a hop cannot be
// read (an obfuscated name, a zone, a mistake), the trusted hop that reported
// it is the answer: it is the last that is known. So is the peer where both
// X-Forwarded-For and Forwarded (RFC 7239) came and they disagree: a proxy
// writes one of them and passes on the other as the client sent it, and which
// is which cannot be told here. The result is the zero Addr if remoteAddr
// itself cannot be read, as on a Unix socket.
func (p Proxies) ClientAddr(remoteAddr string, h http.Header) netip.Addr {
	peer := peerAddr(remoteAddr)
	if !p.trusts(peer) {
		return peer
	}
	old, standard := h["X-Forwarded-For"], h["Forwarded"]
	switch {
	case len(standard) == 0:
		return p.walk(peer, listedHops(old))
	case len(old) == 0:
		return p.walk(peer, forwardedHops(standard))
	}
	client := p.walk(peer, listedHops(old))
	if client != p.walk(peer, forwardedHops(standard)) {
		return peer
	}
	return client
}

// walk goes through the hops, the nearest first, as far as they can be believed.
func (p Proxies) walk(client netip.Addr, hops iter.Seq[string]) netip.Addr {
	for text := range hops {
		if !p.trusts(client) {
			break
		}
		hop, ok := parseHop(text)
		if !ok {
			break
		}
		client = hop
	}
	return client
}

// peerAddr reads the address of a socket. Its zone, if it has one, is this
// host's own word, and dropped: of a link-local peer the rest is what is left.
func peerAddr(remoteAddr string) netip.Addr {
	ap, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().WithZone("").Unmap()
}

func (p Proxies) trusts(a netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

// listedHops are the hops of X-Forwarded-For, the nearest, which is the last, first:
// whatever a client has written to the left of where trust ends is not even read.
func listedHops(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range slices.Backward(lines) {
			for end := len(line); end >= 0; {
				begin := strings.LastIndexByte(line[:end], ',')
				// RFC 9110 section 5.6.1: empty elements of a list do not count.
				if hop := trimSpace(line[begin+1 : end]); hop != "" && !yield(hop) {
					return
				}
				end = begin
			}
		}
	}
}

// parseHop reads one hop: an address, with or without a port, IPv6 with or
// without brackets (with a port always in them).
func parseHop(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return plain(ap.Addr())
	}
	if len(s) > 1 && s[0] == '[' && s[len(s)-1] == ']' {
		a, err := netip.ParseAddr(s[1 : len(s)-1])
		if err != nil || !a.Is6() {
			return netip.Addr{}, false
		}
		return plain(a)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return plain(a)
}

// plain refuses zones, which mean something on one host only, and would give
// a client as many addresses as it can invent names.
func plain(a netip.Addr) (netip.Addr, bool) {
	if a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}
