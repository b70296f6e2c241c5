package vault

import (
	"context"
	"errors"
	"fmt"

	"agentgw/internal/store"
)

// After returns the key with the one that it takes the place of, which opens what it
// wrapped until that is wrapped anew; nothing is wrapped or derived by it.
func (k KEK) After(previous KEK) KEK {
	k.previous = &previous
	return k
}

// unwrap opens a key of the store that wrapper is said to have wrapped. ErrWrongKEK:
// that is none of ours. what names the key in errors.
func (k KEK) unwrap(wrapper string, wrapped, context []byte, what string) ([]byte, error) {
	by := k
	if k.previous != nil && k.previous.fingerprint() == wrapper {
		by = *k.previous
	}
	wrapping, err := newAEAD(by.DeriveKey("wrap"))
	if err != nil {
		return nil, err
	}
	b, err := open(wrapping, wrapped, context)
	switch {
	case err == nil && len(b) == kekSize:
		return b, nil
	case by.fingerprint() != wrapper && k.previous == nil:
		return nil, fmt.Errorf("%w: it is %s, %s wants %s; where it takes the place of that one, give that one as AGENTGATE_VAULT_KEY_PREVIOUS, or its file as AGENTGATE_VAULT_KEY_PREVIOUS_FILE", ErrWrongKEK, k.fingerprint(), what, wrapper)
	case by.fingerprint() != wrapper:
		return nil, fmt.Errorf("%w: it is %s, %s wants %s", ErrWrongKEK, k.fingerprint(), what, wrapper)
	}
	return nil, fmt.Errorf("%s: %w", what, ErrCorrupt)
}

// RewrapStore is what Rewrap needs of a store; see package store for the errors.
type RewrapStore interface {
	KEKStore
	RewrapDataKey(ctx context.Context, was string, k store.DataKey) error
	RewrapParamsKey(ctx context.Context, was string, k store.ParamsKey) error
	RewrapRoot(ctx context.Context, was string, r store.Root) error
}

// Rewrap wraps anew, under k, all that the key before it wrapped, and counts that.
// What is sealed stays as it is: only the keys to it are touched, one by one, so that
// one that was broken off goes on where it was. A key that another process wraps or
// removes meanwhile is left to it. It is done when it returns 0 and no error.
func Rewrap(ctx context.Context, s RewrapStore, k KEK) (done int, err error) {
	again := func(wrapper *string, wrapped *[]byte, context []byte, what string, put func(was string) error) error {
		was := *wrapper
		if was == k.fingerprint() {
			return nil
		}
		key, err := k.unwrap(was, *wrapped, context, what)
		if err != nil {
			return err
		}
		wrapping, err := newAEAD(k.DeriveKey("wrap"))
		if err != nil {
			return err
		}
		if *wrapped, err = seal(wrapping, nil, key, context); err != nil {
			return err
		}
		*wrapper = k.fingerprint()
		switch err := put(was); {
		case err == nil:
			done++
		case !errors.Is(err, store.ErrConflict):
			return err
		}
		return nil
	}
	keys, err := s.DataKeys(ctx)
	if err != nil {
		return done, err
	}
	for _, r := range keys {
		err := again(&r.Wrapper, &r.Wrapped, wrapContext(r.Tenant, r.Number), fmt.Sprint("data key ", r.Number), func(was string) error { return s.RewrapDataKey(ctx, was, r) })
		if err != nil {
			return done, err
		}
	}
	params, err := s.ParamsKeys(ctx)
	if err != nil {
		return done, err
	}
	for _, r := range params {
		if !r.RemovedAt.IsZero() {
			continue
		}
		err := again(&r.Wrapper, &r.Wrapped, paramsContext(r), "params key "+r.ID, func(was string) error { return s.RewrapParamsKey(ctx, was, r) })
		if err != nil {
			return done, err
		}
	}
	roots, err := s.Roots(ctx)
	if err != nil {
		return done, err
	}
	for _, r := range roots {
		err := again(&r.Wrapper, &r.Wrapped, rootContext(r.ID), "delegation root "+r.ID, func(was string) error { return s.RewrapRoot(ctx, was, r) })
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
