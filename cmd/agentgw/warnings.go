package main

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"agentgw/internal/gateway"
	"agentgw/internal/literal"
	"agentgw/internal/registry"
	extra "agentgw/internal/rules"
)

// warnings lists what a sound registry says in vain, in the order of the file:
// services and tunnels that can never be had, and issuers
// whose callers can call nothing.
// Of none, where snapshot is nil.
func warnings(snapshot *registry.Snapshot) registry.Problems {
	if snapshot == nil {
		return nil
	}
	var list registry.Problems
	for _, name := range slices.Sorted(maps.Keys(snapshot.Services)) {
		service := snapshot.Services[name]
		if service.AllowPrivate || !private(service.BaseURL.Hostname()) {
			continue
		}
		list = append(list, registry.NewProblem(service.BaseURLPos, "services."+name+".base_url",
			"every call will be refused: the address is private, loopback or link-local; if it is meant, add allow_private: true"))
	}
	if t := snapshot.Tunnels; t != nil && !t.AllowPrivate {
		for i, to := range t.Allow {
			if h, err := registry.ParseHostPort(strings.TrimPrefix(to, "*.")); err == nil && private(h.Host) {
				list = append(list, registry.NewProblem(t.AllowPos[i], fmt.Sprintf("tunnels.allow[%d]", i),
					"every tunnel to it will be refused: the address is private, loopback or link-local; if it is meant, add allow_private: true"))
			}
		}
	}
	for i := range snapshot.Issuers {
		issuer, path := &snapshot.Issuers[i], fmt.Sprintf("issuers[%d]", i)
		if len(issuer.Services) == 0 && len(issuer.Scopes) == 0 {
			list = append(list, registry.NewProblem(issuer.Pos, path, "whoever has a token of it may call nothing: give services, or scopes"))
		}
		if at, err := url.Parse(issuer.Issuer); err == nil && !issuer.AllowPrivate && private(at.Hostname()) {
			list = append(list, registry.NewProblem(issuer.Pos, path+".issuer",
				"no token will be taken: the address is private, loopback or link-local; if it is meant, add allow_private: true"))
		}
	}
	list = append(list, idle(snapshot)...)
	list.Sort()
	return list
}

// idle lists the services and actions that rules name and that there are not: such a
// rule never acts, and nothing else would tell.
func idle(snapshot *registry.Snapshot) (list registry.Problems) {
	set, err := extra.Compile(snapshot)
	if err != nil {
		return nil // which is told elsewhere
	}
	actions := map[string]bool{}
	for _, service := range snapshot.Services {
		for name := range service.Actions {
			actions[name] = true
		}
	}
	for _, r := range set.Rules() {
		for _, n := range r.Names() {
			if n.Variable == "service" && snapshot.Services[n.Text] == nil || n.Variable == "action" && !actions[n.Text] {
				list = append(list, registry.Problem{
					File: n.Pos.File, Line: n.Pos.Line, Column: n.Pos.Column, Path: "rules." + r.Name + "." + n.Part,
					What: fmt.Sprintf("there is no %s %s, with which this compares", n.Variable, literal.Quote(n.Text)),
				})
			}
		}
	}
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
