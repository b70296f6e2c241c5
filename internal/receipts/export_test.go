package receipts

import (
	"bytes"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/tlog"
)

// What external tests may change or look at.

func SetSegmentSize(o *Options, n int64) { o.segmentSize = n }

func SetKeepRecent(o *Options, n int) { o.keepRecent = n }

func SetNewID(o *Options, f func() string) { o.newID = f }

// VerifyAhead is Verify that looks at so many lines at once, or at one by one.
func VerifyAhead(path, vkey string, anchor []byte, lines int) (*Report, error) {
	return verify(path, vkey, anchor, nil, lines)
}

// Queued is how many records wait to be written.
func (l *Log) Queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.filling.slots)
}

// Skim is what a start reads of a record line.
func Skim(line []byte) (Record, bool) { return skim(line) }

// Tagged ends a record line without its tag, as entry index of the log in dir.
func Tagged(dir string, index uint64, body []byte) ([]byte, error) {
	key, err := loadSigning(realDisk{}, dir, signingKeyFile)
	if err != nil {
		return nil, err
	}
	return key.appendTag(bytes.Clone(body), 0, index), nil
}

// Rewrite writes the log in dir anew as its gateway would have, with every record
// as change leaves it, under good tags and good signatures: what whoever holds
// the signing key can do to a log of which nobody has kept a checkpoint. change
// gets a record line without its tag, and returns one.
func Rewrite(dir string, change func(index uint64, body []byte) []byte) error {
	key, err := loadSigning(realDisk{}, dir, signingKeyFile)
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, logFolder)
	firsts, err := listSegments(folder)
	if err != nil {
		return err
	}
	var tree frontier
	var signed []byte
	for _, first := range firsts {
		path := filepath.Join(folder, segmentName(first))
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var out, records []byte
		var b batchLine
		left := uint64(0)
		for line := range bytes.Lines(text) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			switch {
			case bytes.HasPrefix(line, []byte(headerPrefix)):
				out = append(append(out, line...), '\n')
			case bytes.HasPrefix(line, []byte(batchPrefix)):
				if b, err = parseBatchLine(line); err != nil {
					return err
				}
				left, records = b.Count, nil
			case bytes.HasPrefix(line, []byte(checkpointPrefix)):
				out = appendCheckpointLine(out, signed)
			default:
				changed := change(tree.size, bytes.Clone(line[:len(line)-tagLine]))
				changed = key.appendTag(changed, 0, tree.size)
				tree.push(tlog.RecordHash(changed))
				records = append(append(records, changed...), '\n')
				if left--; left > 0 {
					continue
				}
				if signed, err = (checkpoint{key.origin, tree.size, tree.root()}).sign(key.signer); err != nil {
					return err
				}
				b.Bytes = int64(len(records))
				out = append(appendBatchLine(out, b), records...)
			}
		}
		if err := os.WriteFile(path, out, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, checkpointFile), signed, 0o600)
}

// ForgeProof signs a tree of that origin over those records, with the key of the
// log in dir, and proves one of them in it.
func ForgeProof(dir, origin string, lines [][]byte, index int) ([]byte, error) {
	key, err := loadSigning(realDisk{}, dir, signingKeyFile)
	if err != nil {
		return nil, err
	}
	var list []tlog.Hash
	for _, line := range lines {
		list = append(list, tlog.RecordHash(line))
	}
	h := hashes{size: uint64(len(list)), leaves: func(uint64) ([]tlog.Hash, error) { return list, nil }}
	var f frontier
	for _, leaf := range list {
		f.push(leaf)
	}
	sign := key.signTree
	if origin == key.origin {
		sign = func(c checkpoint) ([]byte, error) { return c.sign(key.signer) }
	}
	signed, err := sign(checkpoint{origin, f.size, f.root()})
	if err != nil {
		return nil, err
	}
	path, err := h.prove(uint64(index), list[index], f.root())
	if err != nil {
		return nil, err
	}
	p := inclusion{line: lines[index], index: uint64(index), path: path, signed: signed}
	return p.append(nil), nil
}

// Nudge has the log look again at what it has to say of itself: a test's clock may
// have gone on between its look at the clock and its wait.
func Nudge(l *Log) { l.nudge() }

// SetIndex has the index brought up to date after so many bytes, in blocks of so
// many entries.
func SetIndex(o *Options, every int64, entries uint32) { o.indexEvery, o.indexBlock = every, entries }

// Index brings the indexes of a log that nobody writes up to date.
func Index(folder string, entries uint32) error {
	x := indexing{disk: realDisk{}, folder: folder, most: entries}
	return x.catchUp(func() bool { return false })
}
