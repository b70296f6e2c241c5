package ratelimit

import (
	"cmp"
	"slices"
)

// Spend has rules alone count a request that runs nothing by itself, such as one that
// brings many calls: all of uses count it, or none does. Of one rule there may be
// several, for as many partition keys. Every rule is asked, also after one has refused.
//
// The key's token was taken before, as c, and stays spent; a refusal's wait covers the
// time until the key has another, which a retry needs.
func (l *Local) Spend(c Charge, uses []Use, now int64) (v Verdict) {
	l.findRules(uses)
	locked := make([]*windows, len(uses))
	for i := range uses {
		locked[i] = uses[i].windows
	}
	// In the order of all calls (see lockRules), each once.
	slices.SortFunc(locked, func(a, b *windows) int { return cmp.Compare(a.number, b.number) })
	locked = slices.Compact(locked)
	for _, w := range locked {
		w.mu.Lock()
	}
	for i := range uses {
		uses[i].askLocked(&v, l.unix(now))
	}
	for i := range uses {
		if v.Outcome == Admitted {
			uses[i].countLocked()
		}
	}
	for _, w := range locked {
		w.mu.Unlock()
	}
	if v.Outcome != Admitted && c.entry != nil {
		c.settleIn(&v, now)
	}
	return v
}
