package receipts

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// A refusal has a record of its own until there are more of them than anybody
// reads. ownRecords is how many one key or one address has in a window that begins
// with the first of them; no summary begins before that, unless all of a class
// together are over their allowance.
const (
	ownWindow  = time.Minute
	ownRecords = 1000
)

// trackedSources bounds for how many keys, and for how many addresses, it is
// remembered how many records they had. Whoever is forgotten begins anew, which
// the allowance of all bounds.
const trackedSources = 10_000

// The allowances of all. Strangers, whose addresses cost nothing, may have 1,000
// records a minute, and 20,000 at once: 1,460,000 a day, or less than a gigabyte.
// Whoever has a key was given it by the operator; all keys together may have
// 20,000 a minute, and 100,000 at once, so that one tenant's flood takes nothing
// from the records of others: 13 GB a day, if somebody who has twenty keys wants
// that.
var (
	strangersAllowance = allowance{burst: 20_000, each: time.Minute / 1_000}
	keysAllowance      = allowance{burst: 100_000, each: time.Minute / 20_000}
)

// allowance is a bucket of records, kept as one time (GCRA). The zero value is
// of no use.
type allowance struct {
	burst int
	each  time.Duration // until there is one more
	next  time.Time     // when it is full again
}

// take reports whether there is one more. A clock that goes back gives nothing.
func (a *allowance) take(now time.Time) bool {
	next := a.next
	if next.Before(now) {
		next = now
	}
	next = next.Add(a.each)
	if next.Sub(now) > time.Duration(a.burst)*a.each {
		return false
	}
	a.next = next
	return true
}

// window counts the records of one source.
type window struct {
	began time.Time
	n     int
}

func (w *window) take(now time.Time) bool {
	if w.n == 0 || now.Sub(w.began) >= ownWindow {
		*w = window{began: now}
	}
	if w.n == ownRecords {
		return false
	}
	w.n++
	return true
}

// budget says which refusals of a class have records of their own. It is bounded
// however many sources there are, and not safe for concurrent use.
type budget struct {
	all     allowance
	sources *simplelru.LRU[string, *window]
}

func newBudget(all allowance) budget {
	sources, _ := simplelru.NewLRU[string, *window](trackedSources, nil) // the size is above 0
	return budget{all, sources}
}

// take reports whether a refusal of that source has a record of its own.
func (b *budget) take(source string, now time.Time) bool {
	w, ok := b.sources.Get(source)
	if !ok {
		w = new(window)
		b.sources.Add(source, w)
	}
	return w.take(now) && b.all.take(now)
}
