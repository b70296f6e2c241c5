package gateway_test

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/receipts"
)

var loopback = prefixes("127.0.0.0/8", "::1/128")

func prefixes(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// from makes a call that a trusted proxy says to come from an address.
func (w *world) from(address, key string) told {
	w.t.Helper()
	r := w.request(context.Background(), key, plainCall("tools", ""))
	r.Header.Set("X-Forwarded-For", address)
	return w.do(r)
}

// TestFailedAuthentications: an address has sixty a minute, one more a second;
// past them it is told for how long, at every way in. A valid key from the same
// address is never refused for them, nor is another address.
func TestFailedAuthentications(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.TrustedProxies = loopback }}.world(t, hello, everything("k"))
	const here, elsewhere = "192.0.2.1", "192.0.2.2"
	for i := range 60 {
		got := w.from(here, "")
		got.want(t, fmt.Sprint("failure ", i), 401, "unauthenticated", "")
		if got.header.Get("WWW-Authenticate") == "" || got.header.Get("Retry-After") != "" {
			t.Fatalf("%v", got.header)
		}
	}
	for range 5 {
		got := w.from(here, "")
		got.want(t, "one too many", 429, "rate_limited", "address")
		if after := got.retryAfter(t); after > 2*time.Second {
			t.Errorf("Retry-After is %v, a token comes each second", after)
		}
		if !strings.Contains(got.body, "more than 60 failed authentications a minute") {
			t.Errorf("it does not say why: %s", got.body)
		}
	}
	read := w.request(context.Background(), "", "")
	read.Method, read.URL.Path, read.Body, read.ContentLength = "GET", "/v1/services", nil, 0
	read.Header.Set("X-Forwarded-For", here)
	w.do(read).want(t, "at another way in", 429, "rate_limited", "address")

	w.from(here, "k").want(t, "a valid key from here", 200, "", "")
	w.from(elsewhere, "").want(t, "a failure elsewhere", 401, "unauthenticated", "")
	w.clock.Advance(time.Second - time.Nanosecond)
	w.from(here, "").want(t, "just before a second", 429, "rate_limited", "address")
	w.clock.Advance(time.Nanosecond)
	w.from(here, "").want(t, "after a second", 401, "unauthenticated", "")
	w.from(here, "").want(t, "once more", 429, "rate_limited", "address")

	refused := 0
	for _, r := range w.ledger.all() {
		if r.Kind == receipts.KindRefusal && r.ClientAddr == here {
			refused++
		}
	}
	if want := 60 + 5 + 1 + 1 + 1 + 1; refused != want {
		t.Errorf("%d records of refused authentications, want %d", refused, want)
	}
}

// TestOneHostIsOneAddress: the /64 of an IPv6 address is one client, in however
// many addresses it comes; an IPv4 address in IPv6 clothing is the IPv4 address.
func TestOneHostIsOneAddress(t *testing.T) {
	w := setup{settings: func(s *config.Settings) { s.TrustedProxies = loopback; s.RateAuthPerMinute = 2 }}.world(t, hello)
	for _, same := range [][]string{
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:1:8000::3"},
		{"198.51.100.7", "::ffff:198.51.100.7", "::ffff:c633:6407"},
	} {
		for i, address := range same {
			status, code, limit := 401, "unauthenticated", ""
			if i == 2 {
				status, code, limit = 429, "rate_limited", "address"
			}
			w.from(address, "").want(t, address, status, code, limit)
		}
	}
	w.from("2001:db8:0:2::1", "").want(t, "the next /64", 401, "unauthenticated", "")
	w.from("198.51.100.8", "").want(t, "the next address", 401, "unauthenticated", "")
}

// TestRefusedAuthenticationsLookAlike: whatever was wrong, the answer is the same
// byte for byte but for what names the request.
func TestRefusedAuthenticationsLookAlike(t *testing.T) {
	expired := everything("expired")
	expired.NotAfter = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	young := everything("young")
	young.NotBefore = expired.NotAfter.Add(time.Second)
	w := newWorld(t, hello, everything("k"), expired, young)
	unknown, _ := identity.NewKey()
	good := w.keys["k"]
	flipped := []byte(good)
	flipped[10] ^= 1
	own := regexp.MustCompile(`"receipt":"[^"]+"`)
	var first string
	for name, authorization := range map[string]string{
		"none": "", "unknown": "Bearer " + unknown.Reveal(), "expired": "Bearer " + w.keys["expired"], "not yet valid": "Bearer " + w.keys["young"],
		"one letter wrong": "Bearer " + string(flipped), "cut": "Bearer " + good[:30], "another scheme": "Basic " + good, "foreign": "Bearer sk-123", "empty": "Bearer ",
	} {
		r := w.request(context.Background(), "", plainCall("tools", ""))
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		got := w.do(r)
		got.want(t, name, 401, "unauthenticated", "")
		for _, varies := range []string{"X-Request-Id", "Agentgate-Receipt", "Date"} {
			got.header.Del(varies)
		}
		all := fmt.Sprint(got.header, own.ReplaceAllString(got.body, ""))
		if first == "" {
			first = all
		}
		if all != first {
			t.Errorf("%s:\n%s\nanother:\n%s", name, all, first)
		}
	}
}
