package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// Feed hands out the entries of a log that are on disk, in order and from some index
// on, to one who copies them elsewhere: entries that a crash could still take back are never
// among them. It reads the segments and keeps no record, so that its place may be any, of
// long ago too, and nobody waits for it. For one goroutine; make one with Log.Feed.
type Feed struct {
	log    *Log
	reader *reader
	next   uint64 // the entry that is handed out next
	at     uint64 // the entry whose line the reader comes to next
}

// Feed begins at entry from, or at the first that retention has left. One beyond the end of
// the log is not an error: nothing comes until the log is as long.
func (l *Log) Feed(from uint64) *Feed { return &Feed{log: l, next: from} }

// Next returns what follows, with at most so many bytes of lines where it is more than
// one, and the index behind the last; nothing where there is nothing new. Entries that
// retention removed before they were asked for are left out. The lines stay good.
func (f *Feed) Next(most int) (entries []Stored, next uint64, err error) {
	size := f.log.size.Load()
	if f.next >= size {
		return nil, f.next, nil
	}
	entries, err = f.read(size, most)
	if err != nil {
		f.Close() // and from anew
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // retention has removed the segment meanwhile
		}
		return nil, f.next, err
	}
	return entries, f.next, nil
}

func (f *Feed) read(size uint64, most int) (entries []Stored, err error) {
	if f.reader == nil {
		if err := f.open(); err != nil {
			return nil, err
		}
	}
	next, bytesOf := f.next, 0
	for next < size && bytesOf < most {
		line, at, _, err := f.reader.next()
		if err == io.EOF { // retention, or the log was moved away
			return nil, fmt.Errorf("the log ends before entry %d: %w", next, fs.ErrNotExist)
		}
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(line, []byte(`{"v":`)) {
			continue
		}
		if f.at++; f.at <= next {
			continue
		}
		r, err := ParseRecord(line)
		if err != nil {
			return nil, &Damage{Position: at, Index: next, ID: idOf(line), What: err.Error()}
		}
		entries = append(entries, Stored{next, at, slices.Clone(line), r})
		next, bytesOf = f.at, bytesOf+len(line)
	}
	// What the buffer holds beyond may be of a write that fails, and be another then.
	f.reader.goTo(f.reader.offset)
	f.next = next
	return entries, nil
}

// open begins to read the segment that holds the next entry.
func (f *Feed) open() error {
	firsts, err := segmentsIn(f.log.disk, f.log.folder)
	if err != nil {
		return err
	}
	removed, err := PrunedBefore(f.log.folder)
	if err != nil {
		return err
	}
	f.next = max(f.next, removed)
	first := uint64(0)
	for _, begins := range firsts {
		if begins <= f.next {
			first = begins
		}
	}
	r := newReader(f.log.folder)
	r.disk, r.from = f.log.disk, first
	f.reader, f.at = r, first
	return nil
}

// Close lets go of the file that it reads. It may be asked again all the same.
func (f *Feed) Close() {
	if f.reader != nil {
		f.reader.close()
		f.reader = nil
	}
}
