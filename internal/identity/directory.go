package identity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Directory is every key that the gateway knows, at one moment. It never
// changes: a new set of keys is a new Directory. The zero value and nil know no
// key.
type Directory struct {
	byDigest map[[32]byte]*Secret
	byID     map[string]*Key
	sorted   []*Key // by id
}

// NewDirectory copies keys into a directory. Two keys of one id, or two of one
// digest, are an error that names both and where they come from: which of them
// a caller is would otherwise depend on their order.
func NewDirectory(keys []*Key) (*Directory, error) {
	d := &Directory{
		byDigest: make(map[[32]byte]*Secret, len(keys)),
		byID:     make(map[string]*Key, len(keys)),
	}
	var problems []error
	for _, given := range keys {
		k := given.clone()
		if first := d.byID[k.ID]; first != nil {
			problems = append(problems, fmt.Errorf("key id %q is declared twice: %s and %s", k.ID, first.origin(), k.origin()))
			continue
		}
		k.prepare()
		d.byID[k.ID] = k
		for _, s := range k.secrets() {
			if first := d.byDigest[s.Digest]; first != nil {
				problems = append(problems, fmt.Errorf("keys %q (%s) and %q (%s) are the same key", first.Key.ID, first.Key.origin(), k.ID, k.origin()))
				continue
			}
			d.byDigest[s.Digest] = s
		}
	}
	if problems != nil {
		return nil, errors.Join(problems...)
	}
	d.sorted = slices.SortedFunc(maps.Values(d.byID), func(a, b *Key) int { return strings.Compare(a.ID, b.ID) })
	for i, k := range d.sorted {
		k.number = i
	}
	return d, nil
}

// Find returns the secret of that digest if it is valid at now, else nil.
func (d *Directory) Find(digest [32]byte, now time.Time) *Secret {
	if d == nil {
		return nil
	}
	s := d.byDigest[digest]
	if s == nil || !s.ValidAt(now) {
		return nil
	}
	return s
}

// ByID returns the key of that id, valid or not, or nil.
func (d *Directory) ByID(id string) *Key {
	if d == nil {
		return nil
	}
	return d.byID[id]
}

// Keys returns every key, by id. The slice is the caller's, the keys are not.
func (d *Directory) Keys() []*Key {
	if d == nil {
		return nil
	}
	return slices.Clone(d.sorted)
}

// Len returns the number of keys.
func (d *Directory) Len() int {
	if d == nil {
		return 0
	}
	return len(d.byID)
}

func (k *Key) clone() *Key {
	c := *k
	c.Services, c.Actions, c.Users = slices.Clone(k.Services), slices.Clone(k.Actions), slices.Clone(k.Users)
	if k.Limits != nil {
		own := *k.Limits
		c.Limits = &own
	}
	if k.Retiring != nil {
		retiring := *k.Retiring
		c.Retiring = &retiring
	}
	return &c
}

func (k *Key) origin() string {
	if k.Origin == "" {
		return "unknown place"
	}
	return k.Origin
}
