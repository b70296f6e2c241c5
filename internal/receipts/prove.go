package receipts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Proof is a stored record and the proof that it is in its tenant's tree. The
// proof holds the record and is verified with nothing else but the log's
// verifier key: see VerifyProof.
type Proof struct {
	Record json.RawMessage // as it is stored
	Text   []byte
}

// snapshot is a tree as a signed checkpoint tells of it. It is not changed.
type snapshot struct {
	checkpoint
	signed []byte
	at     time.Time // when it was signed
	last   uint64
	tiles  []tlog.Hash
	tail   []tlog.Hash // see frontier.tail
	ends   []uint64
}

// signEvery is how often a checkpoint of one tenant is signed, but for a record
// that the last one does not cover.
const signEvery = time.Second

// Prove proves records of this log, as Find has returned them. It takes some
// hundred short reads and, now and then, a signature, whatever the size of the
// log. A record without a tenant gets no Text: it stands in the log's tree alone.
func (l *Log) Prove(records []json.RawMessage) ([]Proof, error) {
	proofs := make([]Proof, len(records))
	for i, line := range records {
		r, err := ParseRecord(line)
		if err != nil {
			return nil, err
		}
		proofs[i].Record = line
		if r.Tenant == "" {
			continue
		}
		if proofs[i].Text, err = l.proveTenant(line, r); err != nil {
			return nil, err
		}
	}
	return proofs, nil
}

func (l *Log) proveTenant(line []byte, r *Record) ([]byte, error) {
	l.mu.Lock()
	b := l.branches[r.Tenant]
	l.mu.Unlock()
	if b == nil {
		return nil, fmt.Errorf("there is no tenant %s", r.Tenant)
	}
	s, reader, err := l.snapshot(b, r.Seq)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	path, err := s.hashes(reader).prove(r.Seq-1, tlog.RecordHash(line), s.Root)
	if err != nil {
		return nil, fmt.Errorf("record %d of %s: %w", r.Seq, r.Tenant, err)
	}
	p := inclusion{line: line, index: r.Seq - 1, path: path, signed: s.signed}
	return p.append(nil), nil
}

func (s *snapshot) hashes(reader *leafReader) *hashes {
	return &hashes{size: s.Size, tiles: s.tiles, tail: s.tail, leaves: func(tile uint64) ([]tlog.Hash, error) {
		if tile < uint64(len(s.ends)) {
			return reader.chain(s.ends[tile], tileWidth)
		}
		return reader.chain(s.last, int(s.Size%tileWidth))
	}}
}

// snapshot returns a tenant's tree under a checkpoint that covers its record seq,
// and a reader of its leaves.
func (l *Log) snapshot(b *branch, seq uint64) (*snapshot, *leafReader, error) {
	now := l.clock.Now()
	l.trees.Lock()
	if b.tree.size < seq {
		l.trees.Unlock()
		return nil, nil, fmt.Errorf("record %d of this tenant is not on disk: %w", seq, fs.ErrNotExist)
	}
	reader := l.leaves.reader()
	s := b.shown
	old := s == nil || s.Size < seq || s.Size < b.tree.size && now.Sub(s.at) >= signEvery
	if old {
		s = &snapshot{checkpoint: b.head(), at: now, last: b.last, tiles: b.tiles, tail: slices.Clone(b.tree.tail()), ends: b.ends}
	}
	l.trees.Unlock()
	if !old {
		return s, reader, nil
	}
	// Apart from the lock, which the committer wants too. Two who ask at once may
	// sign the same: what is signed for a size follows from the log.
	var err error
	if s.signed, err = l.key.signTree(s.checkpoint); err != nil {
		reader.close()
		return nil, nil, err
	}
	l.trees.Lock()
	defer l.trees.Unlock()
	if b.shown == nil || b.shown.Size <= s.Size {
		b.shown = s
	}
	return s, reader, nil
}

// errNoSignature: nothing that is signed covers the record.
var errNoSignature = errors.New("the record is under no signature yet; try again in a second")

// ProveIn finds a receipt in the data folder dir and proves its records, beside a
// gateway that runs or without one. It has to read the log once, which takes as long as a start, and
// the signing key, and proves a record without a tenant in the log's own tree.
// progress is that of Verify.
func ProveIn(dir, id string, progress func(done, total int64)) (proofs []Proof, err error) {
	key, err := loadSigning(realDisk{}, dir, signingKeyFile)
	if err != nil {
		return nil, err
	}
	folder, err := Folder(dir)
	if err != nil {
		return nil, err
	}
	err = whilePruned(folder, func() error {
		proofs, err = proveIn(folder, id, key, progress)
		return err
	})
	return proofs, err
}

func proveIn(folder, id string, key *signing, progress func(done, total int64)) ([]Proof, error) {
	lines, err := FindIn(folder, id)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	log, err := key.covered(folder)
	if err != nil {
		return nil, err
	}
	defer log.reader.close()
	g := newGathering(lines)
	recalled := log.recall(g.leaf)
	err = log.read(progress, func(e event) error {
		if e.kind == aRecord {
			g.take(e)
		}
		return nil
	})
	if err = cmp.Or(err, recalled); err != nil { // what is wrong with the log comes first
		return nil, err
	}
	return g.prove(log.walker, key, log.signed)
}

// gathering keeps, while a log is read, the leaves that the proofs of some of its
// records take: those of their tiles, and of the last one.
type gathering struct {
	lines []json.RawMessage
	of    []gathered
	trees map[string]*kept // by tenant; "" is the log's own
}

type gathered struct {
	seen   bool
	tenant string
	index  uint64 // in its tree
}

type kept struct {
	wanted  bool // a leaf of the current tile is
	size    uint64
	current []tlog.Hash
	tiles   map[uint64][]tlog.Hash
}

func newGathering(lines []json.RawMessage) *gathering {
	g := &gathering{lines: lines, of: make([]gathered, len(lines)), trees: map[string]*kept{}}
	for _, line := range lines {
		if r, err := ParseRecord(line); err == nil {
			g.trees[r.Tenant] = &kept{tiles: map[uint64][]tlog.Hash{}}
		}
	}
	return g
}

func (g *gathering) take(e event) {
	tenant := e.record.Tenant
	if k := g.trees[tenant]; k != nil {
		index := e.index
		if tenant != "" {
			index = e.record.Seq - 1
		}
		for i, line := range g.lines {
			if bytes.Equal(line, e.line) {
				g.of[i], k.wanted = gathered{true, tenant, index}, true
			}
		}
	}
	g.leaf(tenant, e.leaf)
}

// leaf takes the next leaf, which is of a record that is not to be proven.
func (g *gathering) leaf(tenant string, leaf tlog.Hash) {
	k, own := g.trees[tenant], g.trees[""]
	if k != nil && k != own {
		k.add(leaf)
	}
	if own != nil {
		own.add(leaf)
	}
}

func (k *kept) add(leaf tlog.Hash) {
	k.current = append(k.current, leaf)
	if k.size++; len(k.current) < tileWidth {
		return
	}
	if k.wanted {
		k.tiles[k.size/tileWidth-1] = k.current
	}
	k.current, k.wanted = nil, false
}

// prove makes the proofs, once all is read.
func (g *gathering) prove(w *walker, key *signing, signed []byte) ([]Proof, error) {
	proofs := make([]Proof, len(g.lines))
	for i, line := range g.lines {
		at := g.of[i]
		if !at.seen {
			return nil, errNoSignature
		}
		k := g.trees[at.tenant]
		if len(k.current) > 0 {
			k.tiles[k.size/tileWidth] = k.current
		}
		h := hashes{size: k.size, tiles: w.tiles, leaves: func(tile uint64) ([]tlog.Hash, error) { return k.tiles[tile], nil }}
		root, note := w.tree.root(), signed
		if at.tenant != "" {
			b := w.branches[at.tenant]
			var err error
			if note, err = key.signTree(b.head()); err != nil {
				return nil, err
			}
			h.tiles, root = b.tiles, b.tree.root()
		}
		path, err := h.prove(at.index, tlog.RecordHash(line), root)
		if err != nil {
			return nil, err
		}
		p := inclusion{line: line, index: at.index, path: path, signed: note}
		proofs[i] = Proof{line, p.append(nil)}
	}
	return proofs, nil
}
