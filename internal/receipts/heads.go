package receipts

import (
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Heads binds tenants' trees into the log: a heads record tells of those that
// have grown, as they were before it. It shows how many they are and one hash.
type Heads struct {
	Count uint64
	Root  string // base64, of a tree whose leaves are the texts of their checkpoints
}

const (
	// headsEvery is how long a tree's growth stays without a heads record.
	headsEvery = 5 * time.Second
	// maxHeads bounds how many trees one record tells of, and so how long the
	// committer is busy with it: some milliseconds.
	maxHeads = 1024
	// ownCost is what a record of the log's own may take.
	ownCost = fixedRecord + 256 + frame
)

// grown are the trees that have grown since a heads record last told of them,
// the one that has waited longest first. The order follows from the log alone,
// so that a reader knows of which trees a record tells by their number.
type grown struct{ waiting []*branch }

// note is called before b takes a leaf.
func (g *grown) note(b *branch) {
	if b.tree.size == b.bound {
		g.waiting = append(g.waiting, b)
	}
}

// bind takes the first n trees, as they are now, into a heads record.
func (g *grown) bind(n int) *Heads {
	var heads frontier
	for _, b := range g.waiting[:n] {
		heads.push(tlog.RecordHash([]byte(b.head().text())))
		b.bound = b.tree.size
	}
	clear(g.waiting[:n])
	g.waiting = g.waiting[n:]
	return &Heads{uint64(n), heads.root().String()}
}

// headsDue is how long what has grown may still wait for its heads record: less
// than 0 where nothing has.
func (l *Log) headsDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.headsDueLocked()
}

func (l *Log) headsDueLocked() time.Duration {
	if l.unbound.IsZero() || l.contradicted != nil || l.stalledLocked() != nil || !l.space.has(ownCost) {
		return -1
	}
	return max(0, headsEvery-l.clock.Since(l.unbound))
}

// queueHeadsLocked makes a heads record the first of the batch that is filling,
// which has to be empty. What it says is known when all before it is on disk.
func (l *Log) queueHeadsLocked() {
	now := l.clock.Now()
	r := &Record{Kind: KindHeads, ID: l.newID(), Time: now, Replica: l.replica, Interval: l.interval}
	l.filling.heads, l.filling.began = r, now.Add(-intervalLinger) // nobody is to come with it
	l.putLocked(slots.Get().(*slot), r, ownCost)
	l.unbound = time.Time{}
}

// bind writes the heads record with which b begins, if it does: all entries
// before b are on disk and in the trees. Where more trees have grown than one
// record tells of, the next batch begins with another.
func (l *Log) bind(b *batch) {
	if b.heads == nil {
		return
	}
	l.trees.Lock()
	b.heads.Heads = l.grown.bind(min(len(l.grown.waiting), maxHeads))
	left := len(l.grown.waiting)
	l.trees.Unlock()
	l.encode(b.slots[0], b.heads, b.first)
	b.encoding.Done()
	if left > 0 {
		l.mu.Lock()
		l.unbound = b.heads.Time.Add(-headsEvery)
		l.mu.Unlock()
	}
}
