package receipts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// Pruned binds the file that is kept of removed entries into the log.
type Pruned struct {
	Before uint64 // the entries before this one
	SHA256 string // of the file, lower-case hex
}

const (
	prunedFile       = "pruned"
	prunedPrefix     = `{"pruned":`
	prunedTenantLine = `{"tenant":`
)

// pruned is what is kept of entries that were removed: as much of each tree as it
// takes to go on as if they had been read. It is not changed once it is made.
type pruned struct {
	origin   string
	before   uint64
	noTenant uint64      // of the entries before it
	all      run         // as leaves of the log's tree
	keys     []officeKey // the key walk, where a border is among them
	tenants  []prunedTenant
	sum      string // SHA-256 of the file
	bytes    int64  // of the file
}

// prunedTenant is a tenant with records among the removed.
type prunedTenant struct {
	name  string
	last  uint64 // its newest entry and 1
	waits bool   // for a heads record
	tree  run
}

func (p prunedTenant) size() uint64 { return p.tree.size() }

// size is of how many leaves the run is.
func (r run) size() uint64 {
	if len(r) == 0 {
		return 0
	}
	last := r[len(r)-1]
	return last.first + last.count()
}

// frontier is the tree of these leaves.
func (r run) frontier() (f frontier) {
	for _, s := range r {
		f.graft(s)
	}
	return f
}

// append appends the text of the file, and notes its sum.
func (p *pruned) append(dst []byte) []byte {
	b := bytes.NewBuffer(dst)
	b.Write(appendPrunedLine(nil, p))
	write := func(r run) {
		for _, s := range r {
			if s.line == nil {
				b.Write(appendLeftOut(nil, s))
				continue
			}
			b.Write(s.line)
			b.WriteByte('\n')
			b.Write(appendCheckpointLine(nil, s.border))
		}
	}
	write(p.all)
	for _, t := range p.tenants {
		b.Write(appendTenantLine(nil, t, t.size()))
		write(t.tree)
	}
	sum := sha256.Sum256(b.Bytes()[len(dst):])
	p.sum, p.bytes = hex.EncodeToString(sum[:]), int64(b.Len()-len(dst))
	return b.Bytes()
}

func appendPrunedLine(dst []byte, p *pruned) []byte {
	dst = appendText(append(dst, prunedPrefix+`{"v":1,"log":`...), p.origin, 0)
	dst = fmt.Appendf(dst, `,"before":%d,"no_tenant":%d`, p.before, p.noTenant)
	if len(p.keys) > 0 {
		dst = appendText(append(dst, `,"vkey":`...), p.keys[0].vkey, 0)
	}
	return append(dst, "}}\n"...)
}

func appendTenantLine(dst []byte, t prunedTenant, size uint64) []byte {
	dst = appendText(append(dst, prunedTenantLine+`{"name":`...), t.name, 0)
	return fmt.Appendf(dst, `,"size":%d,"last":%d,"waits":%t}}`+"\n", size, t.last, t.waits)
}

// readPruned reads the file; nil where no entry was removed. An error that is
// errPruned says that the file does not hold.
func readPruned(d disk, folder string) (*pruned, error) {
	text, err := readFile(d, filepath.Join(folder, prunedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := parsePruned(text)
	if err != nil && !errors.Is(err, errPruned) {
		err = fmt.Errorf("%w: %w", errPruned, err)
	}
	return p, err
}

// PrunedBefore returns how many entries retention has removed from the log in
// folder, by the word of its files: whether that is so Verify says.
func PrunedBefore(folder string) (uint64, error) {
	p, err := readPruned(realDisk{}, folder)
	if p == nil {
		return 0, err
	}
	return p.before, nil
}

// errPruned: the file of removed entries is not as a writer leaves it.
var errPruned = fmt.Errorf("the file %s is not what is left of removed entries, in its one spelling", prunedFile)

// replaced reports whether the file is another by now: entries were removed since.
func (p *pruned) replaced(d disk, folder string) bool {
	now, err := readPruned(d, folder)
	return err == nil && now != nil && (p == nil || now.sum != p.sum)
}

func parsePruned(text []byte) (*pruned, error) {
	var p *pruned
	var tree *run // that is being read
	var want, counted uint64
	var border bool // is to be the next line
	for line := range bytes.Lines(text) {
		line, whole := bytes.CutSuffix(line, []byte("\n"))
		var err error
		switch {
		case !whole || len(line) > maxLine:
			err = errPruned
		case p == nil:
			if p, err = parsePrunedLine(line); err == nil {
				tree, want, counted = &p.all, p.before, p.noTenant
			}
		case border:
			err = p.readBorder(line)
			border = false
		case bytes.HasPrefix(line, []byte(`{"v":`)) && tree == &p.all && tree.size() < want:
			err = tree.readKey(line)
			border = true
		case bytes.HasPrefix(line, []byte(leftOutPrefix)):
			err = tree.read(line)
		default:
			var t prunedTenant
			var size uint64
			t, size, err = parseTenantLine(line)
			if err == nil && (tree.size() != want || t.last > p.before || size > p.before-counted) {
				err = errPruned
			}
			if err == nil {
				p.tenants = append(p.tenants, t)
				tree, want, counted = &p.tenants[len(p.tenants)-1].tree, size, counted+size
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if p == nil || border || tree.size() != want || counted != p.before || !inOrder(p.tenants) || len(p.keys) == 1 {
		return nil, errPruned
	}
	sum := sha256.Sum256(text)
	p.sum, p.bytes = hex.EncodeToString(sum[:]), int64(len(text))
	return p, nil
}

// read takes the next line of a run.
func (r *run) read(line []byte) error {
	s, err := parseLeftOut(line, r.size())
	if err != nil {
		return err
	}
	if n := len(*r); n == 0 && s.level > 0 || n > 1 && (*r)[n-1].joins(s) {
		return errPruned
	}
	*r = append(*r, s)
	return nil
}

// readKey takes the record of a key that has taken over, as the next leaf.
func (r *run) readKey(line []byte) error {
	rec, err := ParseRecord(line)
	if err != nil {
		return err
	}
	if rec.Kind != KindKey || r.size() == 0 {
		return errPruned
	}
	*r = append(*r, subtree{first: r.size(), root: tlog.RecordHash(line), line: bytes.Clone(line)})
	return nil
}

// readBorder takes the border behind it, which has to hold.
func (p *pruned) readBorder(line []byte) error {
	signed, err := parseCheckpointLine(line)
	if err != nil {
		return err
	}
	text, _ := noteText(signed)
	c, err := parseCheckpoint(text)
	if err != nil {
		return err
	}
	if tree := p.all.frontier(); c != (checkpoint{p.origin, tree.size, tree.root()}) || len(p.keys) == 0 {
		return errPruned
	}
	last := &p.all[len(p.all)-1]
	rec, err := ParseRecord(last.line)
	if err != nil {
		return err
	}
	walk := office{keys: p.keys, named: rec.VKey}
	if err := walk.border(signed, c); err != nil {
		return err
	}
	last.border, p.keys = signed, walk.keys
	return nil
}

func parsePrunedLine(line []byte) (*pruned, error) {
	var l struct {
		Pruned struct {
			Log      string `json:"log"`
			Before   uint64 `json:"before"`
			NoTenant uint64 `json:"no_tenant"`
			VKey     string `json:"vkey"`
		} `json:"pruned"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil, errPruned
	}
	p := &pruned{origin: l.Pruned.Log, before: l.Pruned.Before, noTenant: l.Pruned.NoTenant}
	if l.Pruned.VKey != "" {
		p.keys = []officeKey{newOfficeKey(l.Pruned.VKey, p.origin)}
	}
	if !rendersAs(line, appendPrunedLine(nil, p)) || p.before == 0 || p.before > maxLeaves || p.noTenant > p.before {
		return nil, errPruned
	}
	return p, nil
}

func parseTenantLine(line []byte) (t prunedTenant, size uint64, err error) {
	var l struct {
		Tenant struct {
			Name  string `json:"name"`
			Size  uint64 `json:"size"`
			Last  uint64 `json:"last"`
			Waits bool   `json:"waits"`
		} `json:"tenant"`
	}
	if json.Unmarshal(line, &l) != nil {
		return t, 0, errPruned
	}
	t, size = prunedTenant{name: l.Tenant.Name, last: l.Tenant.Last, waits: l.Tenant.Waits}, l.Tenant.Size
	if !rendersAs(line, appendTenantLine(nil, t, size)) || t.name == "" || size == 0 || t.last == 0 {
		return t, 0, errPruned
	}
	return t, size, nil
}

// inOrder reports whether those who wait come first, and the others by their
// names, and nobody twice.
func inOrder(tenants []prunedTenant) bool {
	seen := make(map[string]bool, len(tenants))
	for i, t := range tenants {
		if seen[t.name] || i > 0 && !tenants[i-1].waits && (t.waits || compareSpelled(tenants[i-1], t) >= 0) {
			return false
		}
		seen[t.name] = true
	}
	return true
}

func compareSpelled(a, b prunedTenant) int {
	return strings.Compare(string(appendText(nil, a.name, 0)), string(appendText(nil, b.name, 0)))
}

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

// startWalker is a walker at the first entry that was not removed.
func startWalker(d disk, folder string) (*walker, error) {
	p, err := readPruned(d, folder)
	if err != nil {
		return nil, err
	}
	w := newWalker(folder)
	w.reader.disk = d
	w.begin(p)
	return w, nil
}

// whilePruned calls read, and again where it has failed and entries were removed
// meanwhile.
func whilePruned(folder string, read func() error) error {
	for {
		p, err := readPruned(realDisk{}, folder)
		if err != nil {
			return err
		}
		if err = read(); err == nil || !p.replaced(realDisk{}, folder) {
			return err
		}
	}
}

// errUnvouched: nothing speaks for the file of removed entries.
var errUnvouched = fmt.Errorf("that the file %s is what is left of them", prunedFile)

// vouched returns an error, errUnvouched, unless the walker began at the log's first
// entry or one of the first size entries says that what it began behind is what was
// left of removed ones. That these are under a signature is the caller's to know.
//
// Whoever is to believe, to sign or to prove anything of a log asks here: the hashes
// of the log's own tree prove themselves, but whose records were removed, and what
// their tenants' trees are, is in nothing but this file, which takes no key to write.
func (w *walker) vouched(size uint64) error {
	if w.pruned == nil || w.prunedBy > 0 && w.prunedBy <= size {
		return nil
	}
	return fmt.Errorf("no entry under a signature says that the %d entries before it were removed and %w", w.pruned.before, errUnvouched)
}

// begin has the walker go on behind entries that were removed. Whether p is what
// was left of them a pruned record has to say: see vouched.
func (w *walker) begin(p *pruned) {
	w.pruned = p
	if p == nil {
		return
	}
	w.reader.from, w.origin, w.office.keys = p.before, p.origin, p.keys
	w.tree, w.held, w.lastCheckpoint = p.all.frontier(), p.before, p.before
	w.tiles = make([]tlog.Hash, p.before>>tileHeight)
	if p.noTenant > 0 {
		w.branches[""] = &branch{seq: p.noTenant}
	}
	for _, t := range p.tenants {
		size := t.size()
		b := &branch{seq: size, tree: t.tree.frontier(), bound: size, last: t.last,
			tiles: make([]tlog.Hash, size>>tileHeight), ends: make([]uint64, size>>tileHeight)}
		w.branches[t.name], w.byTree[b.name(p.origin, t.tree[0].root)] = b, b
		if t.waits {
			b.bound = 0
			w.grown.waiting = append(w.grown.waiting, b)
		}
	}
}

// proves reports whether the record says that p is what is left.
func (r *Record) proves(p *pruned) bool {
	return p != nil && r.Kind == KindPruned && *r.Pruned == Pruned{p.before, p.sum}
}
