package receipts

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// pruning gathers, while entries are read, what is to be kept of them.
type pruning struct {
	all      run
	noTenant uint64
	tenants  map[string]*prunedTenant
}

// newPruning begins behind what was removed before; p may be nil.
func newPruning(p *pruned) *pruning {
	g := &pruning{tenants: make(map[string]*prunedTenant)}
	if p == nil {
		return g
	}
	g.all, g.noTenant = slices.Clone(p.all), p.noTenant
	for _, t := range p.tenants {
		t.tree, t.waits = slices.Clone(t.tree), false
		g.tenants[t.name] = &t
	}
	return g
}

// take takes the next entry.
func (g *pruning) take(e event) {
	g.undecided()
	leaf := subtree{first: e.index, root: e.leaf}
	if e.record.Kind == KindKey && e.index > 0 {
		leaf.line = bytes.Clone(e.line)
	}
	g.all.add(leaf)
	name := strings.Clone(e.record.Tenant) // a record's texts are parts of its line
	if name == "" {
		g.noTenant++
		return
	}
	t := g.tenants[name]
	if t == nil {
		t = &prunedTenant{name: name}
		g.tenants[name] = t
	}
	t.tree.add(subtree{first: t.size(), root: e.leaf})
	t.last = e.index + 1
}

// border takes the border behind the last entry.
func (g *pruning) border(signed []byte) { g.all[len(g.all)-1].border = signed }

// undecided puts the last entry among those that are not shown, where it is a key's
// record behind which no border came.
func (g *pruning) undecided() {
	if n := len(g.all); n > 0 && g.all[n-1].line != nil && g.all[n-1].border == nil {
		leaf := g.all[n-1]
		leaf.line, g.all = nil, g.all[:n-1]
		g.all.add(leaf)
	}
}

// done returns what is kept, of a log in which those tenants wait, with that key
// walk as far.
func (g *pruning) done(origin string, waiting []string, keys []officeKey) *pruned {
	g.undecided()
	if len(keys) < 2 {
		keys = nil // no border is among what is removed
	}
	p := &pruned{keys: keys, origin: origin, before: g.all.size(), noTenant: g.noTenant, all: g.all}
	for _, name := range waiting {
		g.tenants[name].waits = true
		p.tenants = append(p.tenants, *g.tenants[name])
	}
	rest := slices.SortedFunc(maps.Values(g.tenants), func(a, b *prunedTenant) int { return compareSpelled(*a, *b) })
	for _, t := range rest {
		if !t.waits {
			p.tenants = append(p.tenants, *t)
		}
	}
	return p
}
