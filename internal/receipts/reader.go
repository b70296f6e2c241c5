package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	logFolder      = "receipts"
	checkpointFile = "checkpoint"
	quarantine     = "quarantine"
	segmentSuffix  = ".jsonl"
	segmentDigits  = 20
	readSize       = 256 << 10
)

// Position is a place in a log's files.
type Position struct {
	File   string `json:"file"` // base name of the segment
	Offset int64  `json:"offset"`
	Line   int    `json:"line"` // from 1
}

func (p Position) String() string {
	return fmt.Sprintf("%s:%d (byte %d)", p.File, p.Line, p.Offset)
}

// segmentName is the file name of the segment that begins with entry first.
func segmentName(first uint64) string {
	return fmt.Sprintf("%0*d%s", segmentDigits, first, segmentSuffix)
}

// listSegments returns the first entries of the segments in folder, ascending.
// A file that ends like a segment and is not named like one is an error: to
// pass it over would be to pass over records.
func listSegments(folder string) ([]uint64, error) { return segmentsIn(realDisk{}, folder) }

func segmentsIn(d disk, folder string) ([]uint64, error) {
	files, err := d.readDir(folder)
	if err != nil {
		return nil, err
	}
	var firsts []uint64
	for _, f := range files {
		digits, ok := strings.CutSuffix(f.Name(), segmentSuffix)
		if !ok || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		first, err := strconv.ParseUint(digits, 10, 53)
		if err != nil || segmentName(first) != f.Name() || !f.Type().IsRegular() {
			return nil, fmt.Errorf("%s: not a segment of a receipt log", filepath.Join(folder, f.Name()))
		}
		firsts = append(firsts, first)
	}
	slices.Sort(firsts)
	return firsts, nil
}

// bytesIn is how much there is to read, for a progress.
func bytesIn(folder string) (n int64) {
	firsts, _ := listSegments(folder)
	for _, first := range firsts {
		if info, err := os.Stat(filepath.Join(folder, segmentName(first))); err == nil {
			n += info.Size()
		}
	}
	return n
}

var errLongLine = errors.New("the line is longer than any record may be")

// reader yields the lines of a log's segments, one after the other. At the end
// of what is written it returns io.EOF and can be asked again later: it goes on
// from there, into a new segment too. Memory is one buffer.
type reader struct {
	disk   disk
	folder string
	file   file
	first  uint64 // of the open segment
	offset int64  // of buf[start] in the file
	line   int    // number of the line that ends next
	buf    []byte
	start  int
	stop   int
	name   string  // of the open segment's file
	until  *end    // nil: as far as the log goes, however it grows
	only   *uint64 // nil: all segments, else this one
	from   uint64  // segments of entries before it were removed, or were to be
}

// end is where a log ended at one moment.
type end struct {
	segment uint64
	size    int64
}

func newReader(folder string) *reader {
	return &reader{disk: realDisk{}, folder: folder, buf: make([]byte, readSize)}
}

func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// bound keeps the reader to what is there now: one that runs behind a busy
// gateway would otherwise never come to the end.
func (r *reader) bound() error {
	firsts, err := segmentsIn(r.disk, r.folder)
	if err != nil || len(firsts) == 0 {
		r.until = &end{}
		return err
	}
	last := firsts[len(firsts)-1]
	info, err := r.disk.stat(filepath.Join(r.folder, segmentName(last)))
	if err != nil {
		return err
	}
	r.until = &end{last, info.Size()}
	return nil
}

// goTo goes on at an offset of the open segment. The numbers of its lines are no
// longer known.
func (r *reader) goTo(offset int64) {
	r.start, r.stop, r.offset = 0, 0, offset
}

// at is the position of the next line.
func (r *reader) at() Position {
	return Position{File: r.name, Offset: r.offset, Line: r.line}
}

// empty reports whether nothing of the open segment's bytes has come.
func (r *reader) empty() bool { return r.file != nil && r.offset == 0 && r.stop == r.start }

// partial is what follows the last line end.
func (r *reader) partial() []byte { return r.buf[r.start:r.stop] }

// next returns the next line without its end, and whether it is the first of a
// segment. The bytes are good until the next call.
func (r *reader) next() (line []byte, at Position, begins bool, err error) {
	if r.file == nil {
		if err := r.openAfter(nil); err != nil {
			return nil, Position{}, false, err
		}
	}
	scanned := 0
	for {
		if i := bytes.IndexByte(r.buf[r.start+scanned:r.stop], '\n'); i >= 0 {
			line, at = r.buf[r.start:r.start+scanned+i], r.at()
			if len(line) > maxLine {
				return nil, at, false, errLongLine
			}
			r.start += len(line) + 1
			r.offset += int64(len(line) + 1)
			r.line++
			return line, at, at.Offset == 0, nil
		}
		scanned = r.stop - r.start
		if scanned > maxLine {
			return nil, r.at(), false, errLongLine
		}
		switch err := r.fill(); {
		case err == io.EOF:
			if err := r.openAfter(&r.first); err != nil {
				return nil, r.at(), false, err
			}
			scanned = 0
		case err != nil:
			return nil, r.at(), false, err
		}
	}
}

// fill reads more of the open segment.
func (r *reader) fill() error {
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.stop])
		r.start, r.stop = 0, r.stop-r.start
	}
	at, into := r.offset+int64(r.stop), r.buf[r.stop:]
	if r.until != nil && r.first == r.until.segment {
		into = into[:max(0, min(int64(len(into)), r.until.size-at))]
		if len(into) == 0 {
			return io.EOF
		}
	}
	n, err := r.file.ReadAt(into, at)
	r.stop += n
	if n > 0 || err == nil {
		return nil
	}
	return err
}

// openAfter opens the segment after the given one, or the first. There being
// none is io.EOF. What is left of the old one has no line end: with a segment
// after it that is no longer the tail of a log that is being written.
func (r *reader) openAfter(done *uint64) error {
	firsts, err := segmentsIn(r.disk, r.folder)
	if err != nil {
		return err
	}
	for _, first := range firsts {
		if first < r.from || done != nil && first <= *done || r.only != nil && first != *r.only {
			continue
		}
		if r.until != nil && first > r.until.segment {
			break
		}
		// The segment may have grown between the read that found its end and
		// the listing, and only then got its successor.
		if r.file != nil {
			if err := r.fill(); err != io.EOF {
				return err
			}
		}
		if r.stop > r.start {
			return fmt.Errorf("the line has no end: %w", errNotTail)
		}
		if r.file != nil && r.offset == 0 {
			return fmt.Errorf("the segment is empty: %w", errNotTail)
		}
		name := segmentName(first)
		f, err := r.disk.open(filepath.Join(r.folder, name), os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		r.close()
		r.name, r.file, r.first, r.offset, r.line, r.start, r.stop = name, f, first, 0, 1, 0, 0
		return nil
	}
	return io.EOF
}

var errNotTail = errors.New("more of the log follows")

// Folder returns the folder with the segments for a path that a person gives:
// a data folder, a copy that holds only its receipts folder, or that itself.
func Folder(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		empty := ""
		if info.Size() == 0 {
			empty = " (it is empty)"
		}
		return "", fmt.Errorf("%s: not a folder, and no proof%s", path, empty)
	}
	inner := filepath.Join(path, logFolder)
	if info, err := os.Stat(inner); err == nil && info.IsDir() {
		return inner, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return path, nil
}
