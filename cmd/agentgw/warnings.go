package main

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"agentgw/internal/gateway"
	"agentgw/internal/registry"
)

// warnings lists what a sound registry says in vain, in the order of the file:
// what this version does not act upon, and services that can never be called.
// Of none, where snapshot is nil.
func warnings(snapshot *registry.Snapshot) registry.Problems {
	if snapshot == nil {
		return nil
	}
	list := snapshot.Unserved()
	for _, name := range slices.Sorted(maps.Keys(snapshot.Services)) {
		service := snapshot.Services[name]
		if service.AllowPrivate || !private(service.BaseURL.Hostname()) {
			continue
		}
		list = append(list, registry.NewProblem(service.BaseURLPos, "services."+name+".base_url",
			"every call will be refused: the address is private, loopback or link-local; if it is meant, add allow_private: true"))
	}
	list.Sort()
	return list
}

// private reports whether a host can be told to be refused when it is dialled
// without asking anybody: an address, or a name for this machine (RFC 6761).
func private(host string) bool {
	if host = strings.ToLower(strings.TrimSuffix(host, ".")); host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && gateway.Guarded(addr)
}
