package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentgw/internal/admin"
	"agentgw/internal/identity"
	"agentgw/internal/store"
)

// Keys lists the keys of the file that is in force and those of the store. Last uses
// are as of now.
func (o operations) Keys(ctx context.Context) ([]admin.Key, error) {
	if err := o.live.writeUses(ctx); err != nil {
		return nil, ofState(err)
	}
	now := o.clock.Now()
	list, uses, err := keyLines(ctx, o.store, now)
	if err != nil {
		return nil, ofState(err)
	}
	for i := range list {
		list[i].From = "the state store"
	}
	for _, k := range o.live.rules().snapshot.Keys {
		stored := store.Key{
			ID: k.ID, Digest: k.Digest, Services: k.Services, Actions: k.Actions, Users: k.Users, Tenant: k.Tenant,
			User: k.User, Space: k.Space, Org: k.Org, NotBefore: k.NotBefore, NotAfter: k.NotAfter,
		}
		if k.Rate != nil {
			stored.Limits = &store.Limits{RPS: k.Rate.RPS, Burst: k.Rate.Burst}
		}
		if k.Retiring != nil {
			stored.Retiring = &store.Retiring{Digest: k.Retiring.Digest, NotAfter: k.Retiring.NotAfter}
		}
		line := newKeyLine(stored, uses, now)
		line.From = k.Pos.String()
		list = append(list, line)
	}
	slices.SortStableFunc(list, func(a, b admin.Key) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// CreateKey checks what keys create checks, against what is in force.
func (o operations) CreateKey(ctx context.Context, ask admin.NewKey) (string, error) {
	running := o.live.rules()
	request, err := requestOf(ask)
	if err != nil {
		return "", admin.UnfitKey{Err: err}
	}
	k, err := request.key(home{settings: running.settings, snapshot: running.snapshot, store: o.store}, running.effective, o.clock.Now())
	if err != nil {
		return "", admin.UnfitKey{Err: err}
	}
	text, digest := identity.NewKey()
	k.Digest = digest
	if err := o.store.AddKey(ctx, k); errors.Is(err, store.ErrExists) {
		return "", fmt.Errorf("%w, and ids are not used again", admin.ErrKeyExists)
	} else if err != nil {
		return "", ofState(err)
	}
	o.log.Warn("an operator made a key", "key", k.ID)
	o.follow()
	return text.Reveal(), nil
}

// RevokeKey is in force here when it returns, and elsewhere soon.
func (o operations) RevokeKey(ctx context.Context, id string) error {
	err := o.store.RevokeKey(ctx, id, o.clock.Now())
	switch {
	case errors.Is(err, store.ErrNotFound):
		if static := (home{snapshot: o.live.rules().snapshot}).staticKey(id); static != nil {
			return fmt.Errorf("%w at %s: take it out there", admin.ErrKeyOfFile, static.Pos)
		}
		return admin.ErrNoSuchKey
	case err != nil:
		return ofState(err)
	}
	o.log.Warn("an operator revoked a key", "key", id)
	o.follow()
	return nil
}

// follow takes over at once what the store's watcher would within a second.
func (o operations) follow() {
	if err := o.live.refresh(o.background); err != nil {
		o.log.Warn("a change of keys could not be taken over yet; that is tried again", "error", err)
	}
}

// requestOf is ask in the words of keys create, whose lists have commas.
func requestOf(ask admin.NewKey) (*keyRequest, error) {
	r := &keyRequest{id: ask.ID, user: ask.User, space: ask.Space, org: ask.Org}
	given := map[string]bool{"actions": ask.Actions != nil}
	r.given = func(flag string) bool { return given[flag] }
	r.named = func(flag string) string { return strings.ReplaceAll(flag, "-", "_") }
	for _, list := range []struct {
		name  string
		items []string
		into  *string
	}{{"services", ask.Services, &r.services}, {"actions", ask.Actions, &r.actions}, {"users", ask.Users, &r.users}} {
		if slices.ContainsFunc(list.items, func(s string) bool { return strings.Contains(s, ",") }) {
			return nil, fmt.Errorf("%s: holds a comma", list.name)
		}
		*list.into = strings.Join(list.items, ",")
	}
	for _, text := range []struct {
		name string
		from *string
		into *string
	}{{"tenant", ask.Tenant, &r.tenant}, {"rps", (*string)(ask.RPS), &r.rps}, {"burst", (*string)(ask.Burst), &r.burst}, {"not-before", ask.NotBefore, &r.notBefore}, {"expires", ask.Expires, &r.expires}} {
		if text.from != nil {
			given[text.name], *text.into = true, *text.from
		}
	}
	return r, nil
}
