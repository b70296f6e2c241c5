// Package freeport finds addresses for servers that tests start as other programs.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Address is one of this machine that nobody listens at, for a server that is still to be
// started. It is none of those that the system gives to whoever asks for any, or connects
// to others, and which somebody might be given first. It is free for as long as no other
// test happens on the same one.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprint("127.0.0.1:", 10_000+rand.N(20_000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Port is that of an Address.
func Port(t testing.TB) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(Address(t))
	return port
}
