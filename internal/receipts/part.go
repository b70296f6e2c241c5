package receipts

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// part is a segment as a search finds it: the blocks at its front that an index
// has, and the rest of it, which has to be read.
type part struct {
	first   uint64
	segment file
	size    int64
	index   file // nil where there is none
	blocks  []*block
	extra   bool // the index goes on with something that is no block of this segment

	// The rest begins there, with that entry.
	from int64
	next uint64
	// Once it was read, what in it may be wanted.
	rest     []spot
	restRead bool
}

// spot is where a record stands.
type spot struct {
	at     int64
	size   int
	index  uint64
	intent bool
}

// openPart opens a segment and its index. Of the blocks it takes at most so many.
func openPart(d disk, folder string, first uint64, most int) (*part, error) {
	path := filepath.Join(folder, segmentName(first))
	info, err := d.stat(path)
	if err != nil {
		return nil, err
	}
	f, err := d.open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	p := &part{first: first, segment: f, size: info.Size(), next: first}
	if p.index, err = d.open(filepath.Join(folder, indexName(first)), os.O_RDONLY, 0); err != nil {
		p.index = nil // without an index, or without leave to read it, the segment is read
		return p, nil
	}
	for at := int64(0); len(p.blocks) < most; {
		b, err := readBlock(p.index, p.segment, at)
		if err != nil || b.First != p.next || b.Begin < p.from || b.End > p.size {
			p.extra = !endsAt(p.index, at)
			break
		}
		p.blocks = append(p.blocks, b)
		at += int64(b.Size)
		p.from, p.next = b.End, b.First+uint64(b.Count)
	}
	return p, nil
}

func indexName(first uint64) string {
	return strings.TrimSuffix(segmentName(first), segmentSuffix) + indexSuffix
}

// endsAt reports whether the file has nothing from there on.
func endsAt(f io.ReaderAt, at int64) bool {
	_, err := f.ReadAt(make([]byte, 1), at)
	return err == io.EOF
}

func (p *part) close() {
	p.segment.Close()
	if p.index != nil {
		p.index.Close()
	}
}

// eachRecord calls visit for each record line that stands wholly between two
// places of a segment, with where it stands. The line is good until the next.
func eachRecord(segment io.ReaderAt, from, to int64, visit func(line []byte, at int64) error) error {
	buf := make([]byte, min(readSize, max(0, to-from)))
	have := 0
	for {
		n, err := segment.ReadAt(buf[have:min(int64(len(buf)), to-from)], from+int64(have))
		if err != nil && err != io.EOF {
			return err
		}
		text := buf[:have+n]
		for {
			end := bytes.IndexByte(text, '\n')
			if end < 0 {
				break
			}
			if bytes.HasPrefix(text, []byte(`{"v":`)) {
				if err := visit(text[:end], from); err != nil {
					return err
				}
			}
			text, from = text[end+1:], from+int64(end+1)
		}
		if have = copy(buf, text); n == 0 {
			return nil // what is left has no end yet
		}
		if have > maxLine {
			return errLongLine
		}
	}
}
