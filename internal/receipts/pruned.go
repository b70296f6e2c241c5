package receipts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

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

// replaced reports whether the file is another by now: entries were removed since.
func (p *pruned) replaced(d disk, folder string) bool {
	now, err := readPruned(d, folder)
	return err == nil && now != nil && (p == nil || now.sum != p.sum)
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
