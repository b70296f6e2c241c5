package receipts

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// ErrAnchor is the cause of Open's error, and of Healthy's, where the log is not
// the one that its anchor tells of: it was rolled back, or it has a twin.
var ErrAnchor = errors.New("the receipt log and its anchor contradict each other")

// anchorEvery is how often a running log looks at its anchor and replaces it.
const anchorEvery = time.Second

// anchorPatience is how long a volume may take to answer before that is told of, and
// before Close waits for it no more.
const anchorPatience = 2 * time.Second

// anchor is the newest signed checkpoint, kept outside of the data folder: what is
// restored, cut or copied there does not take it along. It is replaced by content,
// since a lock cannot be relied on where two machines share a volume: what stands
// there has to be a checkpoint that this log extends. Of two that go on from
// copies of one folder, the first to write is in the anchor, and the other finds
// there what it does not have.
//
// Between looking and replacing somebody else may replace it too. Each of the two
// looks again a second later, and whoever does not find its own then stops. So
// two may both have taken records for some two seconds; one of them has them in
// vain.
type anchor struct {
	path string
	keys note.Verifiers

	// Since Open it belongs to the one goroutine that tends it.
	left     []byte // what this process has last seen or put there
	mayBegin bool   // there may be none yet: the log has nothing that could be lost
	warned   bool
	stopped  chan struct{} // closed when nobody tends it any more

	// While Open reads the log.
	start *checkpoint // nil: there was none
	met   bool        // the log has its size and another root there, or the same
	fork  bool
}

// anchorAt reads the anchor at path; nil for "". The error says what an operator
// has to do about one that cannot be read.
func anchorAt(path string, keys note.Verifiers) (*anchor, error) {
	if path == "" {
		return nil, nil
	}
	a := &anchor{path: path, keys: keys, stopped: make(chan struct{})}
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a, nil // whether it may be missing is the log's to say
	case err != nil:
		return nil, fmt.Errorf("the anchor cannot be read: %w", err)
	}
	c, err := a.open(raw)
	if err != nil {
		return nil, err
	}
	a.left, a.start = raw, &c
	return a, nil
}

var errEmptyAnchor = errors.New("it is empty")

// open reads what stands in the file. Somebody may have put it there with a shell,
// so that the last line end does not matter.
func (a *anchor) open(raw []byte) (checkpoint, error) {
	text := bytes.TrimSpace(raw)
	if len(text) == 0 {
		return checkpoint{}, fmt.Errorf("the anchor %s: %w: bring it back from a copy; or, to begin one with the log as it is, `agentgw receipts checkpoint > %s`", a.path, errEmptyAnchor, a.path)
	}
	c, err := openCheckpoint(fmt.Appendf(nil, "%s\n", text), a.keys)
	if err != nil {
		return c, fmt.Errorf("%w: %s is not a checkpoint by this log's key (%w). Each gateway needs an anchor of its own; "+
			"to begin anew with another data folder, move the anchor of the old one away", ErrAnchor, a.path, err)
	}
	return c, nil
}

// pass is told of each entry while the log is read, and compares where the
// anchor was signed.
func (a *anchor) pass(tree *frontier) {
	if a != nil && a.start != nil && a.start.Size == tree.size {
		a.met, a.fork = true, a.start.Root != tree.root()
	}
}

// before reports whether there is an anchor over fewer entries.
func (a *anchor) before(size uint64) bool { return a != nil && a.start != nil && a.start.Size < size }

// holds says whether a log of so many entries is the one that the anchor tells of.
func (a *anchor) holds(size uint64) error {
	switch {
	case a == nil || a.start != nil && a.start.Size == 0:
		return nil
	case a.start == nil && size <= 1: // its key at most
		a.mayBegin = true
		return nil
	case a.start == nil:
		return fmt.Errorf("the anchor %s is missing, and the log holds %d entries: mount the volume that it is on; "+
			"or, to begin one with the log as it is, `agentgw receipts checkpoint > %s`", a.path, size, a.path)
	case a.start.Size > size:
		return fmt.Errorf("%w: the log holds %d entries, but the anchor %s covers %d: the folder is of an earlier time, or a copy. "+
			"Nothing was changed. If another gateway runs that goes on from this log, let this one be. Otherwise bring the later folder back; or, to begin a new log, "+
			"move the folder, the signing key beside it and the anchor away", ErrAnchor, size, a.path, a.start.Size)
	case !a.met || a.fork:
		return a.forked(size, a.start.Size)
	}
	return nil
}

func (a *anchor) forked(size, covers uint64) error {
	return fmt.Errorf("%w: the log holds %d entries, and the anchor %s covers %d, which are others: two gateways have gone on from copies of one folder, or entries were replaced. "+
		"`agentgw receipts verify --anchor` shows from where on. Keep the one that the anchor tells of; to begin a new log, move the folder, the signing key beside it and the anchor away",
		ErrAnchor, size, a.path, covers)
}

// look compares what stands in the anchor, and replaces it where newest is
// another. newest is asked only after the anchor was read: the log has grown by
// then. An error that is not ErrAnchor means that it could not be reached.
func (a *anchor) look(newest func() (signed []byte, size uint64), rootAt func(size uint64) (tlog.Hash, error)) error {
	raw, err := os.ReadFile(a.path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !(missing && a.mayBegin) {
		return err // a missing one is what a volume leaves that was taken away
	}
	signed, size := newest()
	if !missing && !bytes.Equal(raw, a.left) {
		c, err := a.open(raw)
		if err != nil {
			return err
		}
		if c.Size > size {
			return a.forked(size, c.Size)
		}
		root, err := rootAt(c.Size)
		if err != nil {
			return err
		}
		if root != c.Root {
			return a.forked(size, c.Size)
		}
		a.left = raw
	}
	if size == 0 || bytes.Equal(signed, a.left) {
		return nil
	}
	if err := a.replace(signed); err != nil {
		return err
	}
	a.left, a.mayBegin = signed, false
	return nil
}

// replace puts signed in the anchor's place: it is there whole, or the old one is.
// The name in between is this process's alone: a twin may write at the same time.
func (a *anchor) replace(signed []byte) error {
	var own [8]byte
	rand.Read(own[:])
	folder, name := filepath.Split(a.path)
	folder = filepath.Clean(folder)
	tmp := filepath.Join(folder, "."+name+"."+hex.EncodeToString(own[:]))
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(signed)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, a.path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return realDisk{}.syncDir(folder) // it is on no disk of the log's
}

// tendAnchor looks at the anchor each second until the log is closed, and then
// once more. It is apart from the committer, which must not wait for a volume
// that is perhaps at the other end of a network.
func (l *Log) tendAnchor() {
	defer close(l.anchor.stopped)
	for {
		timer := l.clock.NewTimer(anchorEvery)
		last := false
		select {
		case <-timer.Chan():
		case <-l.stopped:
			last = true
		}
		timer.Stop()
		err := l.lookAtAnchor()
		if errors.Is(err, ErrAnchor) || last {
			return
		}
		if err != nil && !l.anchor.warned {
			l.logger.Warn("the anchor cannot be kept up to date; the log goes on, and it is tried again each second", "file", l.anchor.path, "error", err)
		}
		l.anchor.warned = err != nil
	}
}

// awaitAnchor returns once nobody tends the anchor any more, or its volume has not
// answered for long. The log is stopped.
func (l *Log) awaitAnchor() {
	if l.anchor == nil {
		return
	}
	select {
	case <-l.anchor.stopped:
	case <-l.clock.After(anchorPatience):
		l.logger.Warn("the anchor's volume does not answer; the log is closed without it", "file", l.anchor.path)
	}
}

// lookAtAnchor is look for this log as it is now. One that contradicts its anchor
// takes no more records.
func (l *Log) lookAtAnchor() error {
	var mu sync.Mutex
	answered := false
	tell := func(ok bool) {
		if l.onAnchor != nil {
			l.onAnchor(ok)
		}
	}
	// The volume may never answer, and then nobody comes to the lines below.
	watch := l.clock.AfterFunc(anchorPatience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !answered {
			tell(false)
			l.logger.Warn("the anchor's volume does not answer; the log goes on without it", "file", l.anchor.path, "after", anchorPatience.String())
		}
	})
	err := l.anchor.look(func() ([]byte, uint64) {
		signed := l.Checkpoint()
		_, size, _ := claimed(signed)
		return signed, size
	}, l.rootAt)
	watch.Stop()
	mu.Lock()
	answered = true
	tell(err == nil)
	mu.Unlock()
	if errors.Is(err, ErrAnchor) {
		l.mu.Lock()
		l.contradicted = fmt.Errorf("%w until a restart: %w", ErrUnavailable, err)
		l.room.Broadcast()
		l.mu.Unlock()
		l.nudge() // the committer has nothing left to do
		l.logger.Error("the receipt log contradicts its anchor; no receipt is taken until a restart", "folder", l.folder, "error", err)
	}
	return err
}

// rootAt returns the root that the log's tree had at a size.
func (l *Log) rootAt(size uint64) (tlog.Hash, error) {
	h, reader, err := l.hashesOf("")
	if err != nil {
		return tlog.Hash{}, err
	}
	defer reader.close()
	return tlog.TreeHash(int64(size), h)
}
