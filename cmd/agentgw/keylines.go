package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"agentgw/internal/store"
)

// keyLine is a key as keys list shows it.
type keyLine struct {
	ID         string        `json:"id"`
	State      string        `json:"state"` // valid, pending, expired or revoked
	Services   []string      `json:"services"`
	Actions    []string      `json:"actions,omitempty"`
	Users      []string      `json:"users"`
	Tenant     string        `json:"tenant,omitempty"`
	RPS        *float64      `json:"rps,omitempty"`
	Burst      *int          `json:"burst,omitempty"`
	User       string        `json:"user,omitempty"`
	Space      string        `json:"space,omitempty"`
	Org        string        `json:"org,omitempty"`
	CreatedAt  time.Time     `json:"created_at"`
	NotBefore  *time.Time    `json:"not_before,omitempty"`
	ExpiresAt  *time.Time    `json:"expires_at,omitempty"`
	RevokedAt  *time.Time    `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time    `json:"last_used_at,omitempty"` // of the newest secret
	Retiring   *retiringLine `json:"retiring,omitempty"`
}

// retiringLine is the older of two secrets, while it is valid.
type retiringLine struct {
	ExpiresAt  time.Time  `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

// keyLines are the keys of the store as they stand at now.
func keyLines(ctx context.Context, s *store.SQLite, now time.Time) ([]keyLine, error) {
	keys, err := s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	uses, err := s.LastUses(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([]keyLine, 0, len(keys))
	for _, k := range keys {
		lines = append(lines, newKeyLine(k, uses, now))
	}
	return lines, nil
}

func newKeyLine(k store.Key, uses map[[32]byte]time.Time, now time.Time) keyLine {
	line := keyLine{
		ID: k.ID, State: "valid", Services: k.Services, Actions: k.Actions, Users: k.Users, Tenant: k.Tenant,
		User: k.User, Space: k.Space, Org: k.Org, CreatedAt: k.CreatedAt,
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
		line.Retiring = &retiringLine{ExpiresAt: old.NotAfter, LastUsedAt: given(uses[old.Digest])}
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

func (c *cli) listKeys(lines []keyLine, asJSON bool) error {
	if asJSON {
		return c.printJSON(lines)
	}
	return c.printTable(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "ID\tSTATE\tSERVICES\tACTIONS\tUSERS\tTENANT\tOWNER\tCREATED\tEXPIRES\tLAST USED")
		for _, l := range lines {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, l.State, strings.Join(l.Services, ","),
				orDash(strings.Join(l.Actions, ",")), printable(strings.Join(l.Users, ",")), orDash(l.Tenant), orDash(printable(l.owner())), when(&l.CreatedAt), when(l.ExpiresAt), when(l.LastUsedAt))
			if old := l.Retiring; old != nil {
				fmt.Fprintf(w, "%s\tretiring\t\t\t\t\t\t\t%s\t%s\n", l.ID, when(&old.ExpiresAt), when(old.LastUsedAt))
			}
		}
	})
}

// owner is whose key it is, in words.
func (l keyLine) owner() string {
	var all []string
	for _, of := range []struct{ what, who string }{{"user", l.User}, {"space", l.Space}, {"org", l.Org}} {
		if of.who != "" {
			all = append(all, of.what+" "+of.who)
		}
	}
	return strings.Join(all, ", ")
}
