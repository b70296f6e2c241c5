package literal_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"agentgw/internal/literal"
)

// check reads each text and compares the value, or expects an error for nil.
func check[T comparable](t *testing.T, what string, parse func(string) (T, error), tests map[string]any) {
	t.Helper()
	for text, want := range tests {
		got, err := parse(text)
		switch {
		case want == nil && err == nil:
			t.Errorf("%s %q: read as %v", what, text, got)
		case want != nil && err != nil:
			t.Errorf("%s %q: %v", what, text, err)
		case want != nil && any(got) != want:
			t.Errorf("%s %q: %v, want %v", what, text, got, want)
		}
	}
}

func TestForms(t *testing.T) {
	check(t, "decimal", literal.Decimal, map[string]any{
		"0": 0.0, "20": 20.0, "0.5": 0.5, "1.50": 1.5, "1000000": 1e6,
		"": nil, " 1": nil, "1 ": nil, "+1": nil, "-1": nil, "-0": nil, "01": nil, "0123": nil, "1.": nil, ".5": nil, "1e3": nil, "0x1F": nil,
		"0o17": nil, "1_000": nil, "1,000": nil, "12:30:45": nil, "NaN": nil, ".nan": nil, "inf": nil, "Infinity": nil, "-inf": nil, "~": nil, "null": nil, "true": nil, "١": nil,
		"1" + fmt.Sprintf("%0400d", 0): nil,
	})
	check(t, "whole", literal.Whole, map[string]any{
		"0": 0, "7": 7, "9223372036854775807": math.MaxInt64,
		"": nil, "9223372036854775808": nil, "1.0": nil, "010": nil, "-1": nil, "1e3": nil, "1_0": nil, "0x1": nil,
	})
	check(t, "duration", literal.Duration, map[string]any{
		"0": time.Duration(0), "0s": time.Duration(0), "250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "0.5m": 30 * time.Second,
		"1h30m": 90 * time.Minute, "5us": 5 * time.Microsecond, "5µs": 5 * time.Microsecond,
		"": nil, "30": nil, "0.5": nil, "5000000000": nil, "30 s": nil, "1d": nil, "1.5d": nil, "1d12h": nil, "99999999999999999999d": nil, "-5s": nil, "s": nil, "1S": nil, ".5s": nil, "1e3s": nil, "+5s": nil, "inf": nil, "9999999999h": nil,
	})
	check(t, "size", literal.Size, map[string]any{
		"0": int64(0), "4096": int64(4096), "1KiB": int64(1024), "10MiB": int64(10 << 20), "2GiB": int64(2 << 30),
		"": nil, "10MB": nil, "10 MiB": nil, "10mib": nil, "-1": nil, "1.5MiB": nil, "010": nil, "99999999999GiB": nil, "9223372036854775808": nil,
	})
	check(t, "bool", literal.Bool, map[string]any{
		"true": true, "false": false,
		"": nil, "True": nil, "FALSE": nil, "yes": nil, "no": nil, "on": nil, "off": nil, "1": nil, "0": nil, "n": nil,
	})
}

func TestHost(t *testing.T) {
	for _, s := range []string{"a", "u.example", "U.example", "u.example.", "x_y.local", "127.0.0.1", "[::1]", "[2001:db8::5]", "xn--bcher-kva.example", "3com.example"} {
		if err := literal.Host(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{
		"", ".", "a..b", "-", "bücher.example", "a b", "a/b", "a@b", "a%2eb", "2001:db8::5", "::1", "[::1", "::1]", "[]", "[a]", "[127.0.0.1]", "[fe80::1%eth0]", "[fe80::1%25eth0]",
		"[::1]x", "127.1", "1", "0x7f.1", "0x7f000001", "017700000001", "256.0.0.1", "1.2.3.04", "1.2.3.4.5", "1.2.3.4.",
	} {
		if s == "-" {
			continue // odd, but a name to a resolver
		}
		if err := literal.Host(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func TestSplitHostPort(t *testing.T) {
	tests := []struct {
		in, host, port string
		found          bool
	}{
		{"a:1", "a", "1", true},
		{"a", "a", "", false},
		{"a:", "a", "", true},
		{":1", "", "1", true},
		{"[::1]:1", "[::1]", "1", true},
		{"[::1]", "[::1]", "", false},
		{"[::1]b", "[::1]b", "", false},
		{"::1", "::1", "", false},
		{"2001:db8::5:8080", "2001:db8::5:8080", "", false},
	}
	for _, tt := range tests {
		if host, port, found := literal.SplitHostPort(tt.in); host != tt.host || port != tt.port || found != tt.found {
			t.Errorf("%q: %q %q %v", tt.in, host, port, found)
		}
	}
	for _, p := range []string{"", "0", "65536", "-1", "080", "+80", "http", "1.0"} {
		if n, err := literal.Port(p); err == nil {
			t.Errorf("port %q is %d", p, n)
		}
	}
	if n, err := literal.Port("65535"); err != nil || n != 65535 {
		t.Error(n, err)
	}
}

func TestCheckRate(t *testing.T) {
	tests := []struct {
		rps   float64
		burst int
		ok    bool
	}{
		{0, 0, true}, {0, 1, false}, {1, 0, true}, {1, 3600, true}, {1, 3601, false},
		{1.0 / 3600, 1, true}, {0.0002, 1, false}, {1e9, 1, true}, {1.1e9, 1, false},
	}
	for _, tt := range tests {
		if err := literal.CheckRate(tt.rps, tt.burst); (err == nil) != tt.ok {
			t.Errorf("%v %v: %v", tt.rps, tt.burst, err)
		}
	}
	for rps, want := range map[float64]int{0.1: 1, 1: 1, 1.1: 2, 20: 20} {
		if got := literal.DefaultBurst(rps); got != want {
			t.Errorf("%v: %d, want %d", rps, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"max_inflight", "rate_limit", "timeout", "rps", "burst"}
	tests := map[string]string{
		"max_in_fligth": "max_inflight", "max_inflght": "max_inflight", "RATE_LIMIT": "rate_limit", "rp": "rps", "burts": "burst",
		"tiemout": "timeout", "colour": "", "x": "", "credential": "",
	}
	for in, want := range tests {
		if got := literal.Nearest(in, known); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestQuoteCutsWhatIsLong(t *testing.T) {
	long := make([]rune, 100)
	for i := range long {
		long[i] = 'é'
	}
	if got := literal.Quote(string(long)); len([]rune(got)) != 64+2+3 {
		t.Error(got)
	}
}

// TestDaysAreWrittenInHours: somebody who thinks in days is told how many hours
// to write.
func TestSpanLeavesOutWhatIsNothing(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 250 * time.Millisecond: "250ms", time.Minute: "1m", 10 * time.Minute: "10m", 90 * time.Second: "1m30s",
		time.Hour: "1h", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s",
	} {
		if got := literal.Span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestDaysAreWrittenInHours(t *testing.T) {
	for text, want := range map[string]string{
		"30d":                   `"30d" is in days, which are written in hours: 720h`,
		"1.5d":                  `"1.5d" is in days, which are written in hours: 1d is 24h`,
		"1d12h":                 `"1d12h" is in days, which are written in hours: 1d is 24h`,
		"9223372036854775807d":  `"9223372036854775807d" is in days, which are written in hours: 1d is 24h`,
		"99999999999999999999d": `"99999999999999999999d" is in days, which are written in hours: 1d is 24h`,
		"days":                  `"days" is not a duration such as 250ms, 30s or 10m`,
	} {
		if _, err := literal.Duration(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestKeysAreMasked: a gateway's key is not repeated, whole or in part, wherever in
// a text it stands and however little of that is kept; what is short enough to be a
// name is.
func TestKeysAreMasked(t *testing.T) {
	const twenty = "agw_0123456789abcdefGHIJ"
	for in, want := range map[string]string{
		twenty: "agw_[redacted]", twenty + "KLMNOPQRSTUVWXYZ": "agw_[redacted]", "Bearer x" + twenty + "\n" + twenty + ".": "Bearer xagw_[redacted]\nagw_[redacted].",
		twenty[:23]: twenty[:23], "agw_a-key-of-ours-with-a-name": "agw_a-key-of-ours-with-a-name", "": "",
	} {
		if got := literal.Mask(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := literal.Quote(strings.Repeat("x", 50) + twenty); got != `"`+strings.Repeat("x", 50)+`agw_[redacted]"` {
		t.Error(got)
	}
}
