package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"agentgw/internal/admin"
	"agentgw/internal/store"
)

// keyLines are the keys of the store as they stand at now, and when any secret was
// used last, by its digest.
func keyLines(ctx context.Context, s *store.Store, now time.Time) (lines []admin.Key, uses map[[32]byte]time.Time, err error) {
	keys, err := s.Keys(ctx)
	if err != nil {
		return nil, nil, err
	}
	if uses, err = s.LastUses(ctx); err != nil {
		return nil, nil, err
	}
	lines = make([]admin.Key, 0, len(keys))
	for _, k := range keys {
		lines = append(lines, newKeyLine(k, uses, now))
	}
	return lines, uses, nil
}

func newKeyLine(k store.Key, uses map[[32]byte]time.Time, now time.Time) admin.Key {
	line := admin.Key{
		ID: k.ID, State: "valid", Services: k.Services, Actions: k.Actions, Users: k.Users, Tenant: k.Tenant,
		User: k.User, Space: k.Space, Org: k.Org, CreatedAt: given(k.CreatedAt),
		NotBefore: given(k.NotBefore), ExpiresAt: given(k.NotAfter), RevokedAt: given(k.RevokedAt), LastUsedAt: given(uses[k.Digest]),
	}
	if k.Limits != nil {
		line.RPS, line.Burst = &k.Limits.RPS, &k.Limits.Burst
	}
	switch {
	case line.RevokedAt != nil:
		line.State = "revoked"
	case line.ExpiresAt != nil && !now.Before(k.NotAfter):
		line.State = "expired"
	case now.Before(k.NotBefore):
		line.State = "pending"
	}
	if old := k.Retiring; old != nil && now.Before(old.NotAfter) && line.RevokedAt == nil {
		line.Retiring = &admin.RetiringKey{ExpiresAt: old.NotAfter, LastUsedAt: given(uses[old.Digest])}
	}
	return line
}

// given is a time, or nil for none.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (c *cli) listKeys(lines []admin.Key, asJSON bool) error {
	if asJSON {
		return c.printJSON(lines)
	}
	return c.printTable(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "ID\tSTATE\tSERVICES\tACTIONS\tUSERS\tTENANT\tOWNER\tCREATED\tEXPIRES\tLAST USED")
		for _, l := range lines {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, l.State, strings.Join(l.Services, ","),
				orDash(strings.Join(l.Actions, ",")), printable(strings.Join(l.Users, ",")), orDash(l.Tenant), orDash(printable(ownerOf(l))), when(l.CreatedAt), when(l.ExpiresAt), when(l.LastUsedAt))
			if old := l.Retiring; old != nil {
				fmt.Fprintf(w, "%s\tretiring\t\t\t\t\t\t\t%s\t%s\n", l.ID, when(&old.ExpiresAt), when(old.LastUsedAt))
			}
		}
	})
}

// ownerOf is whose key it is, in words.
func ownerOf(l admin.Key) string {
	var all []string
	for _, of := range []struct{ what, who string }{{"user", l.User}, {"space", l.Space}, {"org", l.Org}} {
		if of.who != "" {
			all = append(all, of.what+" "+of.who)
		}
	}
	return strings.Join(all, ", ")
}
