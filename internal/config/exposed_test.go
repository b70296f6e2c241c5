package config

import (
	"strings"
	"testing"
)

func TestExposed(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:9090": false, "127.9.8.7:0": false, "[::1]:9090": false, "localhost:9090": false, "LocalHost:1": false, "ops.localhost:1": false,
		"[::ffff:127.0.0.1]:9090": false,
		":9090":                   true, "0.0.0.0:9090": true, "[::]:9090": true, "192.0.2.1:9090": true, "10.0.0.1:9090": true, "[2001:db8::1]:9090": true,
		"ops.example:9090": true, "localhost.example:9090": true, "[::ffff:0.0.0.0]:9090": true, "[fe80::1%eth0]:9090": true,
	} {
		s := &Settings{AdminListen: address}
		if got := s.Exposed(); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
		if risks := s.Risks(); (len(risks) == 1) != want || want && !strings.Contains(risks[0], address+" can be reached") {
			t.Errorf("%s: %v", address, risks)
		}
	}
}
