package receipts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// The lines of a segment that are not records. Each is parsed and then compared
// with its own rendering, which leaves one spelling and makes every byte of a
// segment mean something.

const (
	headerPrefix     = `{"segment":`
	batchPrefix      = `{"batch":`
	checkpointPrefix = `{"checkpoint":`

	maxCheckpoint = 1024 // bytes of a checkpoint's line, and then some: they have about 230
)

// header is the first line of a segment.
type header struct {
	Version int    `json:"v"`
	Log     string `json:"log"`
	First   uint64 `json:"first"`
	VKey    string `json:"vkey"`
}

func appendHeader(dst []byte, h header) []byte {
	dst = fmt.Appendf(dst, headerPrefix+`{"v":%d,"log":`, h.Version)
	dst = appendText(dst, h.Log, 0)
	dst = fmt.Appendf(dst, `,"first":%d,"vkey":`, h.First)
	dst = appendText(dst, h.VKey, 0)
	return append(dst, "}}\n"...)
}

// errNewer: a newer version of this program wrote it.
var errNewer = errors.New("written by a newer version")

func parseHeader(line []byte) (header, error) {
	var h struct {
		Segment header `json:"segment"`
	}
	if json.Unmarshal(line, &h) != nil {
		return header{}, errors.New("not a segment's header")
	}
	if h.Segment.Version > 1 {
		return header{}, fmt.Errorf("%w: the segment has version %d; this program knows version 1", errNewer, h.Segment.Version)
	}
	if h.Segment.Version != 1 || !rendersAs(line, appendHeader(nil, h.Segment)) {
		return header{}, errors.New("not in the one spelling of a header")
	}
	return h.Segment, nil
}

// batchLine stands before the records that were written together.
type batchLine struct {
	First uint64
	Count uint64
	Bytes int64
}

func appendBatchLine(dst []byte, b batchLine) []byte {
	dst = strconv.AppendUint(append(dst, batchPrefix+`{"first":`...), b.First, 10)
	dst = strconv.AppendUint(append(dst, `,"count":`...), b.Count, 10)
	dst = strconv.AppendInt(append(dst, `,"bytes":`...), b.Bytes, 10)
	return append(dst, "}}\n"...)
}

func parseBatchLine(line []byte) (batchLine, error) {
	first, rest, ok1 := numberAfter(line, batchPrefix+`{"first":`)
	count, rest, ok2 := numberAfter(rest, `,"count":`)
	size, _, ok3 := numberAfter(rest, `,"bytes":`)
	if !ok1 || !ok2 || !ok3 {
		return batchLine{}, errors.New("not a batch line")
	}
	b := batchLine{First: first, Count: count, Bytes: int64(size)}
	if !rendersAs(line, appendBatchLine(nil, b)) {
		return batchLine{}, errors.New("not in the one spelling of a batch line")
	}
	return b, nil
}

// numberAfter cuts a number off that stands after prefix.
func numberAfter(line []byte, prefix string) (n uint64, rest []byte, ok bool) {
	line, ok = bytes.CutPrefix(line, []byte(prefix))
	end := 0
	for end < len(line) && line[end] >= '0' && line[end] <= '9' {
		end++
	}
	n, err := strconv.ParseUint(string(line[:end]), 10, 53)
	return n, line[end:], ok && err == nil
}

// appendCheckpointLine appends the line that holds the signed note.
func appendCheckpointLine(dst, signed []byte) []byte {
	dst = append(dst, checkpointPrefix+`"`...)
	for _, c := range signed { // a note has no control byte but the line end, and no quote of ours
		switch c {
		case '\n':
			dst = append(dst, `\n`...)
		case '"', '\\':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, "\"}\n"...)
}

// parseCheckpointLine returns the signed note, its signature unchecked. There may
// be one of these for each record, so it is not left to encoding/json.
func parseCheckpointLine(line []byte) ([]byte, error) {
	text, ok1 := bytes.CutPrefix(line, []byte(checkpointPrefix+`"`))
	text, ok2 := bytes.CutSuffix(text, []byte(`"}`))
	if !ok1 || !ok2 || !utf8.Valid(text) {
		return nil, errors.New("not a checkpoint line")
	}
	signed := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c < 0x20 || c == 0x7f {
			return nil, errors.New("not a checkpoint line")
		}
		if c == '\\' && i+1 < len(text) {
			i++
			if c = text[i]; c == 'n' {
				c = '\n'
			}
		}
		signed = append(signed, c)
	}
	if !rendersAs(line, appendCheckpointLine(make([]byte, 0, len(line)+1), signed)) {
		return nil, errors.New("not in the one spelling of a checkpoint line")
	}
	return signed, nil
}

// rendersAs compares a line without its end and a rendering with it.
func rendersAs(line, rendered []byte) bool {
	return len(rendered) == len(line)+1 && bytes.Equal(line, rendered[:len(line)])
}

// checkpoint is what a signed note says of a tree.
type checkpoint struct {
	Origin string
	Size   uint64
	Root   tlog.Hash
}

func (c checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

func (c checkpoint) sign(s note.Signer) ([]byte, error) {
	return note.Sign(&note.Note{Text: c.text()}, s)
}

// parseCheckpoint reads the text of a note. It says nothing of signatures.
func parseCheckpoint(text string) (checkpoint, error) {
	bad := errors.New("not a checkpoint (origin, size and root, each on its line)")
	lines := bytes.Split([]byte(text), []byte("\n"))
	if len(lines) != 4 {
		return checkpoint{}, bad
	}
	size, err := strconv.ParseUint(string(lines[1]), 10, 53)
	if err != nil {
		return checkpoint{}, bad
	}
	root, err := base64.StdEncoding.DecodeString(string(lines[2]))
	if err != nil || len(root) != tlog.HashSize {
		return checkpoint{}, bad
	}
	c := checkpoint{Origin: string(lines[0]), Size: size, Root: tlog.Hash(root)}
	if c.text() != text {
		return checkpoint{}, bad // "007", or base64 with stray bits
	}
	return c, nil
}

// noteText returns the text that a note's signatures are over.
func noteText(signed []byte) (string, bool) {
	i := bytes.LastIndex(signed, []byte("\n\n"))
	if i < 0 {
		return "", false
	}
	return string(signed[:i+1]), true
}

// openCheckpoint checks a note's signature by one of known and reads its text.
// An error that is a *note.UnverifiedNoteError means that none of the
// signatures is by a known key; *note.InvalidSignatureError a forged one.
func openCheckpoint(signed []byte, known note.Verifiers) (checkpoint, error) {
	n, err := note.Open(signed, known)
	if err != nil {
		return checkpoint{}, err
	}
	if err := oneSpelling(n.Sigs[0]); err != nil {
		return checkpoint{}, err
	}
	return parseCheckpoint(n.Text)
}

// oneSpelling looks at the two bits of the base64 that decoders drop: with them
// flipped the signature would still hold.
func oneSpelling(s note.Signature) error {
	sig, err := base64.StdEncoding.DecodeString(s.Base64)
	if err != nil || s.Base64 != base64.StdEncoding.EncodeToString(sig) {
		return errors.New("the checkpoint's signature is not in its one spelling")
	}
	return nil
}

// openStored is openCheckpoint for what a log itself stores, and a proof ends
// with: it has exactly one signature, and whose that is matters only once all is
// in its one spelling.
func openStored(signed []byte, known note.Verifiers) (checkpoint, error) {
	c, _, err := openStoredBy(signed, known)
	return c, err
}

// openStoredBy also returns the hash of the key that has signed.
func openStoredBy(signed []byte, known note.Verifiers) (c checkpoint, by uint32, err error) {
	text, ok := noteText(signed)
	if !ok {
		return c, 0, errors.New("not a signed note")
	}
	if c, err = parseCheckpoint(text); err != nil {
		return c, 0, err
	}
	name, signature, _ := strings.Cut(strings.TrimPrefix(string(signed[len(text)+1:]), "— "), " ")
	signature = strings.TrimSuffix(signature, "\n")
	if err := oneSpelling(note.Signature{Base64: signature}); err != nil {
		return c, 0, err
	}
	if !bytes.Equal(signed, fmt.Appendf(nil, "%s\n— %s %s\n", text, name, signature)) {
		return c, 0, errors.New("the checkpoint has not exactly one signature")
	}
	n, err := note.Open(signed, known)
	if err != nil {
		return c, 0, err
	}
	return c, n.Sigs[0].Hash, nil
}
