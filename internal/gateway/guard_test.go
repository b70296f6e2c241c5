package gateway

import (
	"net/netip"
	"testing"
)

func TestGuarded(t *testing.T) {
	for _, c := range []struct {
		addr string
		want bool
	}{
		{"127.0.0.1", true}, {"10.1.2.3", true}, {"172.31.255.255", true}, {"172.32.0.1", false},
		{"192.168.0.1", true}, {"169.254.169.254", true}, {"100.64.0.1", true}, {"100.128.0.1", false},
		{"198.18.0.1", true}, {"0.0.0.0", true}, {"224.0.0.1", true}, {"255.255.255.255", true},
		{"8.8.8.8", false}, {"2606:4700::1111", false},
		{"::1", true}, {"::", true}, {"::127.0.0.1", true}, {"::ffff:127.0.0.1", true}, {"::ffff:8.8.8.8", false},
		{"fc00::1", true}, {"fe80::1", true}, {"fe80::1%eth0", true}, {"fec0::1", true},
		{"64:ff9b::a9fe:a9fe", true}, {"64:ff9b:1::1", true}, {"2002:a9fe:a9fe::", true}, {"2001::1", true},
	} {
		if got := Guarded(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("Guarded(%s) = %v, want %v", c.addr, got, c.want)
		}
	}
	if !Guarded(netip.Addr{}) {
		t.Error("an address that is none is not guarded")
	}
}
