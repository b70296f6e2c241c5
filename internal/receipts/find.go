package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// keepRecent is how many receipts are found without reading whole segments.
const keepRecent = 1 << 15

// place is where a record line stands.
type place struct {
	segment uint64
	at      int64
	bytes   int // with the line end
}

// recent remembers where the records of the newest receipts stand, and by which key
// they are: whoever asks for one of somebody else's is told that there is none, and
// waits for that as long as for an id that nobody has. An entry is complete: a receipt whose call is still running is not forgotten, so that its
// outcome always meets its intent here. Those are as many as calls in flight, and
// summaries that are being counted.
type recent struct {
	keep    int // how many receipts; never changed
	mu      sync.Mutex
	entries map[string]*recentEntry
	ring    []string // ids, the oldest at next
	next    int
	sieve   sieve
}

type recentEntry struct {
	places []place
	pair   [2]place // what places begins with: most receipts have an intent and an outcome
	key    uint64   // the hash of whose it is
	open   bool     // it has begun and not ended
}

// addBatchLocked adds the records that stand one behind the other from at on.
func (c *recent) addBatchLocked(slots []*slot, at place) {
	for _, s := range slots {
		at.bytes = len(s.line)
		c.addLocked(s.id, s.key, s.begins, at)
		at.at += int64(len(s.line))
	}
}

func (c *recent) addLocked(id, key string, begins bool, p place) {
	e := c.entries[id]
	if e == nil || e.places[len(e.places)-1].segment != p.segment {
		c.sieve.add(p.segment, id, key)
	}
	if e == nil {
		e = c.makeRoomLocked(id)
		e.places, e.key = e.pair[:0], c.sieve.hash(key, "")
		c.entries[id] = e
	}
	e.places = append(e.places, p)
	e.open = begins
}

// makeRoomLocked gives id a place in the ring and an entry, those of the oldest
// entry which is not open. It looks at a few only: were all of them open, the
// ring grows.
func (c *recent) makeRoomLocked(id string) *recentEntry {
	if c.entries == nil {
		c.entries = make(map[string]*recentEntry)
	}
	if len(c.ring) >= c.keep {
		for range 32 {
			old := c.next
			c.next = (c.next + 1) % len(c.ring)
			e := c.entries[c.ring[old]]
			if e == nil { // see prune
				e = new(recentEntry)
			}
			if !e.open {
				delete(c.entries, c.ring[old])
				c.ring[old] = id
				return e
			}
		}
	}
	c.ring = append(c.ring, id)
	return new(recentEntry)
}

// prune forgets what stands in segments of entries before one.
func (c *recent) prune(before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range c.entries {
		e.places = slices.DeleteFunc(e.places, func(p place) bool { return p.segment < before })
		if len(e.places) == 0 {
			delete(c.entries, id)
		}
	}
	c.sieve.sealed = slices.DeleteFunc(c.sieve.sealed, func(s sealedSieve) bool { return s.first < before })
}

// isOpen reports whether a receipt has an intent and no outcome.
func (c *recent) isOpen(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	return e != nil && e.open
}

// forget empties it.
func (c *recent) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.ring, c.next, c.sieve = nil, nil, 0, sieve{}
}

func (c *recent) find(id, key string) []place {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[id]; e != nil && e.key == c.sieve.hash(key, "") {
		return slices.Clone(e.places)
	}
	return nil
}

// segments are those that may hold records of an older receipt.
func (c *recent) segments(id, key string) []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sieve.segments(id, key)
}

// Find returns the records of one receipt of a key in log order, as they are stored.
// An id that is not in the log gives none and no error, and costs next to nothing;
// so does a receipt that is of another key, which cannot be told from it by time.
// A receipt older than the newest 32,768 is looked for in the segment or two
// that hold it, a tenth of a second each, one search at a time. Only records
// that are on disk are found.
func (l *Log) Find(id, key string) ([]json.RawMessage, error) {
	found, err := l.find(id, key)
	if errors.Is(err, fs.ErrNotExist) { // removed by retention, which forgets it first
		found, err = l.find(id, key)
	}
	return found, err
}

func (l *Log) find(id, key string) ([]json.RawMessage, error) {
	if places := l.recent.find(id, key); places != nil {
		return readPlaces(l.disk, l.folder, places)
	}
	segments := l.recent.segments(id, key)
	if len(segments) == 0 {
		return nil, nil
	}
	l.searching.Lock()
	defer l.searching.Unlock()
	var found []json.RawMessage
	for _, first := range segments {
		r := newReader(l.folder)
		r.disk, r.only = l.disk, &first
		more, err := findIn(r, id)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

func readPlaces(d disk, folder string, places []place) ([]json.RawMessage, error) {
	var records []json.RawMessage
	for _, p := range places {
		line, err := readPlace(d, folder, p)
		if err != nil {
			return nil, err
		}
		records = append(records, line)
	}
	return records, nil
}

func readPlace(d disk, folder string, p place) (json.RawMessage, error) {
	f, err := d.open(filepath.Join(folder, segmentName(p.segment)), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line := make([]byte, p.bytes)
	if _, err := f.ReadAt(line, p.at); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}

// FindIn returns the records of one receipt from the segments in folder, in log
// order. It needs no lock. Unlike Find it reads them all.
func FindIn(folder, id string) ([]json.RawMessage, error) {
	return findIn(newReader(folder), id)
}

func findIn(r *reader, id string) ([]json.RawMessage, error) {
	member := appendText([]byte(`"id":`), id, 0)
	defer r.close()
	if err := r.bound(); err != nil {
		return nil, err
	}
	var found []json.RawMessage
	for {
		line, _, _, err := r.next()
		switch {
		case err == io.EOF:
			return found, nil
		case err != nil:
			return nil, err
		case !bytes.Contains(line[:min(len(line), 1024)], member):
			continue
		}
		// Another text of the record may hold the same bytes; the record decides.
		if rec, err := ParseRecord(line); err == nil && rec.ID == id {
			found = append(found, slices.Clone(line))
		}
	}
}

// move says that the records of a segment that stood behind from now stand by
// bytes further on.
func (c *recent) move(from place, by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		for i := range e.places {
			if p := &e.places[i]; p.segment == from.segment && p.at > from.at {
				p.at += by
			}
		}
	}
}
