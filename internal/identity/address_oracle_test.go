package identity_test

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

// The oracle reads addresses and headers by their grammars (RFC 3986 section
// 3.2.2, RFC 7239 section 4), slowly and with nothing of what the product uses.

const (
	octet  = `(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	ipv4   = octet + `(?:\.` + octet + `){3}`
	token  = "[-!#$%&'*+.^_`|~0-9A-Za-z]+"
	quoted = `"(?:[^"\\]|\\.)*"`
	pair   = token + `=(?:` + token + `|` + quoted + `)`
	blank  = `[ \t]*`
)

var (
	onlyIPv4  = regexp.MustCompile(`^` + ipv4 + `$`)
	withPort  = regexp.MustCompile(`^(` + ipv4 + `|\[[^]]*\])(?::([0-9]+))?$`)
	element   = regexp.MustCompile(`^` + blank + `(` + pair + `(?:` + blank + `;` + blank + pair + `)*)?` + blank + `(?:,|$)`)
	forPair   = regexp.MustCompile(`(?i)^for=(.*)$`)
	onePair   = regexp.MustCompile(pair)
	backslash = regexp.MustCompile(`(?s)\\(.)`)
)

// octets reads an address as 4 or 16 bytes, an IPv4 address in IPv6 clothing as
// 4; nil is of none.
func octets(s string) []byte {
	if onlyIPv4.MatchString(s) {
		var b []byte
		for part := range strings.SplitSeq(s, ".") {
			n, _ := strconv.Atoi(part)
			b = append(b, byte(n))
		}
		return b
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return nil
	}
	if strings.Contains(s, ".") {
		if !onlyIPv4.MatchString(s[at+1:]) {
			return nil
		}
		four := octets(s[at+1:])
		s = s[:at+1] + hex.EncodeToString(four[:2]) + ":" + hex.EncodeToString(four[2:])
	}
	groups := func(s string) (b []byte, ok bool) {
		if s == "" {
			return nil, true
		}
		for g := range strings.SplitSeq(s, ":") {
			n, err := strconv.ParseUint(g, 16, 16)
			if err != nil || len(g) > 4 || strings.ContainsAny(g, "+-_") {
				return nil, false
			}
			b = append(b, byte(n>>8), byte(n))
		}
		return b, true
	}
	before, after, short := strings.Cut(s, "::")
	head, ok := groups(before)
	tail, okToo := groups(after)
	if !ok || !okToo || !short && len(head) != 16 || short && len(head)+len(tail) > 14 {
		return nil
	}
	all := append(append(head, make([]byte, 16-len(head)-len(tail))...), tail...)
	if string(all[:12]) == "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff" {
		return all[12:]
	}
	return all
}

// hopOctets reads a hop.
func hopOctets(s string) []byte {
	m := withPort.FindStringSubmatch(s)
	if m == nil {
		return octets(s)
	}
	if port, err := strconv.ParseUint(m[2], 10, 64); m[2] != "" && (err != nil || port > 65535) {
		return nil
	}
	inner, bracketed := strings.CutPrefix(m[1], "[")
	if !bracketed {
		return octets(inner)
	}
	if inner = strings.TrimSuffix(inner, "]"); !strings.Contains(inner, ":") {
		return nil
	}
	return octets(inner)
}

// oracleHops returns the hops, of which nil is one that is none, and whether the
// lines are what the grammar allows.
func oracleHops(xff, forwarded []string) (hops [][]byte, lawful bool) {
	for _, line := range xff {
		for hop := range strings.SplitSeq(line, ",") {
			if hop = strings.Trim(hop, " \t"); hop != "" {
				hops = append(hops, hopOctets(hop))
			}
		}
	}
	for _, line := range forwarded {
		for line != "" {
			m := element.FindStringSubmatch(line)
			if m == nil {
				return nil, false
			}
			line = line[len(m[0]):]
			if m[1] == "" {
				continue
			}
			var nodes []string
			for _, p := range onePair.FindAllString(m[1], -1) {
				if f := forPair.FindStringSubmatch(p); f != nil {
					node := f[1]
					if strings.HasPrefix(node, `"`) {
						node = backslash.ReplaceAllString(node[1:len(node)-1], "$1")
					}
					nodes = append(nodes, node)
				}
			}
			var hop []byte
			if len(nodes) == 1 {
				hop = hopOctets(nodes[0])
			}
			hops = append(hops, hop)
		}
	}
	return hops, true
}

func oracleTrusts(address []byte) bool { // what oracleTrusted says
	v4 := len(address) == 4 && address[0] == 192 && address[1] == 0 && address[2] == 2
	v6 := len(address) == 16 && string(address[:6]) == "\x20\x01\x0d\xb8\xff\xff"
	return v4 || v6
}

const oracleTrusted = "192.0.2.0/24,2001:db8:ffff::/48"

func oracleWalk(hops [][]byte) []byte {
	client := []byte{192, 0, 2, 1}
	for i := len(hops) - 1; i >= 0 && oracleTrusts(client) && hops[i] != nil; i-- {
		client = hops[i]
	}
	return client
}

// oracle is the client of a request from 192.0.2.1; it knows nothing of lines that
// are not lawful.
func oracle(xff, forwarded []string) (client []byte, known bool) {
	old, _ := oracleHops(xff, nil)
	standard, lawful := oracleHops(nil, forwarded)
	if !lawful {
		return nil, false
	}
	byOld, byStandard := oracleWalk(old), oracleWalk(standard)
	switch {
	case len(forwarded) == 0:
		return byOld, true
	case len(xff) == 0 || string(byOld) == string(byStandard):
		return byStandard, true
	}
	return []byte{192, 0, 2, 1}, true
}

func checkAgainstOracle(t *testing.T, xff, forwarded []string) (known bool) {
	t.Helper()
	h := http.Header{}
	if len(xff) > 0 {
		h["X-Forwarded-For"] = xff
	}
	if len(forwarded) > 0 {
		h["Forwarded"] = forwarded
	}
	got := proxies(oracleTrusted).ClientAddr("192.0.2.1:1", h)
	if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
		t.Fatalf("%q: %v", h, got)
	}
	want, known := oracle(xff, forwarded)
	if !known {
		return false
	}
	if w, _ := netip.AddrFromSlice(want); got != w {
		t.Fatalf("%q: %v, want %v", h, got, w)
	}
	if p := identity.LimitPrefix(got); got.Is6() && (p.Bits() != 64 || p.Addr().AsSlice()[7] != want[7] || p.Addr().AsSlice()[8] != 0) || got.Is4() && p.Bits() != 32 {
		t.Fatalf("%v is limited as %v", got, p)
	}
	return true
}

// forms are hops: one's own address forms, and what is none.
var forms = []string{
	"203.0.113.7", "203.0.113.7:5123", "203.0.113.7:65535", "192.0.2.2", "192.0.2.3:1", "2001:db8::7", "[2001:db8::7]", "[2001:db8::7]:5123",
	"2001:DB8:FFFF::2", "[2001:db8:ffff::3]:443", "2001:db8:ffff:0:0:0:0:4", "::ffff:203.0.113.7", "[::ffff:192.0.2.4]:1", "::ffff:c000:0205", "::",
	"1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "64:ff9b::192.0.2.33", "::192.0.2.1", "0.0.0.0", "255.255.255.255",
	"unknown", "_hidden", "203.0.113.7:65536", "203.0.113.7:", "203.0.113.7:x", "[203.0.113.7]", "[2001:db8::7", "2001:db8::7]", "[2001:db8::7]x", "[2001:db8::7]:", "[]",
	"fe80::1%eth0", "[fe80::1%eth0]:443", "[::ffff:192.0.2.2%1]", "203.0.113.007", "0x7f.1", "3405803783", "203.0.113", "203.0.113.7.8", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:8::",
	":::", "1::2::3", "12345::", "::g", "2001:db8::7:5123", "localhost", "", " ", "203.0.113.7 203.0.113.8", "+1.2.3.4", "::+1", "1_0.0.0.1", "::ffff:203.0.113.256",
}

// TestClientAddrAgainstAnOracle, over lists of hops in both headers and of every
// form, cut into lines at random.
func TestClientAddrAgainstAnOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	hop := func() string {
		if random.IntN(3) == 0 {
			return one(forms[3:5]...) // a trusted one, so that lists are gone through
		}
		return one(forms...)
	}
	lines := func(item func() string) (list []string) {
		for range random.IntN(3) {
			var items []string
			for range 1 + random.IntN(4) {
				items = append(items, item())
			}
			list = append(list, strings.Join(items, one(",", ", ", " ,\t", ",,")))
		}
		return list
	}
	quote := func(node string) string {
		switch {
		case random.IntN(8) == 0:
			return one(`"`+node, node+`"`, `"`+node+`"x`, `"`+node+`\"`, "") // not lawful, most of them
		case strings.ContainsAny(node, ":[], ") || random.IntN(2) == 0:
			return `"` + strings.ReplaceAll(node, "[", one("[", `\[`)) + `"`
		}
		return node
	}
	element := func() string {
		pairs := []string{one("for", "For", "FOR") + "=" + quote(hop())}
		for range random.IntN(3) {
			pairs = append(pairs, one("proto=https", `by="[2001:db8::1]:1"`, `host="a,b;c=\"d\""`, "x=for", `secret="for=6.6.6.6"`))
		}
		if random.IntN(10) == 0 {
			pairs = append(pairs, "for="+quote(hop()))
		}
		if random.IntN(10) == 0 {
			pairs = pairs[1:]
		}
		random.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		return strings.Join(pairs, one(";", "; ", " ;"))
	}
	rounds, known := 5000, 0
	if os.Getenv("DRILLS") == "full" {
		rounds = 2_000_000
	}
	for range rounds {
		xff, forwarded := lines(hop), lines(element)
		switch random.IntN(3) {
		case 0:
			xff = nil
		case 1:
			forwarded = nil
		}
		if checkAgainstOracle(t, xff, forwarded) {
			known++
		}
	}
	if known < rounds/2 {
		t.Errorf("the oracle knew %d of %d", known, rounds)
	}
}

func FuzzClientAddrAgainstAnOracle(f *testing.F) {
	for _, form := range forms {
		f.Add(form+",192.0.2.2", `for="`+form+`", for=192.0.2.2`)
	}
	f.Fuzz(func(t *testing.T, xff, forwarded string) {
		checkAgainstOracle(t, strings.Split(xff, "\n"), nil)
		checkAgainstOracle(t, nil, strings.Split(forwarded, "\n"))
		checkAgainstOracle(t, strings.Split(xff, "\n"), strings.Split(forwarded, "\n"))
	})
}
