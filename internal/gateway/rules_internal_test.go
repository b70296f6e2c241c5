package gateway

import (
	"net/netip"
	"testing"
)

// TestWhatAnAddressIsLimitedAs: one that is not known has a text too; none would be to
// no rule's account.
func TestWhatAnAddressIsLimitedAs(t *testing.T) {
	for address, want := range map[netip.Addr]string{
		{}: "unknown", netip.MustParseAddr("203.0.113.7"): "203.0.113.7", netip.MustParseAddr("2001:db8:0:1::9"): "2001:db8:0:1::/64",
	} {
		if got := limitedAs(address); got != want {
			t.Errorf("%v: %q, want %q", address, got, want)
		}
	}
}
