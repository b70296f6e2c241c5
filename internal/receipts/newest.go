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
)

// NewestCheckpoint returns the newest signed checkpoint in folder, its signature
// unchecked: the last one that stands in the segments, or the checkpoint file
// where that covers more. A gateway that runs adds to the segments after each
// batch and replaces the file once a second, so the segments are ahead of it;
// in a copy either may be missing. There being none at all is fs.ErrNotExist.
func NewestCheckpoint(folder string) ([]byte, error) {
	firsts, err := listSegments(folder)
	if err != nil {
		return nil, err
	}
	file, err := os.ReadFile(filepath.Join(folder, checkpointFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	newest, size, found := claimed(file)
	for _, first := range slices.Backward(firsts) {
		note, n, ok, err := lastCheckpoint(filepath.Join(folder, segmentName(first)))
		if err != nil {
			return nil, err
		}
		if ok {
			if !found || n > size {
				newest, found = note, true
			}
			break
		}
	}
	if !found {
		return nil, fmt.Errorf("%s: no checkpoint: %w", folder, fs.ErrNotExist)
	}
	return newest, nil
}

// claimed reads how many entries a signed note says that it covers. ok is false
// where it is no checkpoint: a crash may have left the file empty.
func claimed(signed []byte) (_ []byte, size uint64, ok bool) {
	text, ok := noteText(signed)
	if !ok {
		return nil, 0, false
	}
	c, err := parseCheckpoint(text)
	return signed, c.Size, err == nil
}

// lastCheckpoint finds the last checkpoint line of a segment, from its end: the
// line is among the last bytes, and the segment may be large.
func lastCheckpoint(path string) (signed []byte, size uint64, ok bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, false, err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, false, err
	}
	mark := []byte("\n" + checkpointPrefix) // never the first line: that is the header
	buf := make([]byte, readSize)
	for end > 0 {
		start := max(0, end-int64(len(buf)))
		chunk := buf[:end-start]
		if _, err := f.ReadAt(chunk, start); err != nil {
			return nil, 0, false, err
		}
		for i := bytes.LastIndex(chunk, mark); i >= 0; i = bytes.LastIndex(chunk[:i], mark) {
			line := make([]byte, maxLine+1)
			n, err := f.ReadAt(line, start+int64(i)+1)
			if err != nil && err != io.EOF {
				return nil, 0, false, err
			}
			line, _, whole := bytes.Cut(line[:n], []byte("\n"))
			if note, err := parseCheckpointLine(line); whole && err == nil {
				if signed, size, ok := claimed(note); ok {
					return signed, size, true, nil
				}
			}
		}
		if end = start; start > 0 {
			end += int64(len(mark)) - 1 // one that begins in the chunk before
		}
	}
	return nil, 0, false, nil
}
