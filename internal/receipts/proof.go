package receipts

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"
)

// ProofHeader is the first line of a proof, by which a file of one is known.
const ProofHeader = "c2sp.org/tlog-proof@v1\n"

// maxPath is the longest audit path: that of a tree of 2^53 leaves.
const maxPath = 53

// inclusion is a proof as https://c2sp.org/tlog-proof spells it. The record line
// is its extra data, so that it can be verified with nothing else at hand.
type inclusion struct {
	line   []byte // the leaf
	index  uint64
	path   tlog.RecordProof
	signed []byte // the checkpoint
}

func (p *inclusion) append(dst []byte) []byte {
	dst = append(dst, ProofHeader+"extra "...)
	dst = base64.StdEncoding.AppendEncode(dst, p.line)
	dst = append(dst, "\nindex "...)
	dst = strconv.AppendUint(dst, p.index, 10)
	dst = append(dst, '\n')
	for _, h := range p.path {
		dst = append(base64.StdEncoding.AppendEncode(dst, h[:]), '\n')
	}
	return append(append(dst, '\n'), p.signed...)
}

var errProof = errors.New("not a proof of a receipt (https://c2sp.org/tlog-proof, with the record as extra data)")

// parseInclusion reads one proof. It checks its spelling and nothing else.
func parseInclusion(text []byte) (*inclusion, error) {
	head, signed, ok1 := bytes.Cut(text, []byte("\n\n"))
	rest, ok2 := bytes.CutPrefix(head, []byte(ProofHeader+"extra "))
	extra, rest, ok3 := bytes.Cut(rest, []byte("\nindex "))
	if !ok1 || !ok2 || !ok3 || len(extra) > base64.StdEncoding.EncodedLen(maxLine) {
		return nil, errProof
	}
	number, rest, _ := bytes.Cut(rest, []byte("\n"))
	index, err := strconv.ParseUint(string(number), 10, 53)
	if err != nil {
		return nil, errProof
	}
	p := &inclusion{index: index, signed: signed}
	if p.line, err = base64.StdEncoding.DecodeString(string(extra)); err != nil {
		return nil, errProof
	}
	for len(rest) > 0 && len(p.path) <= maxPath {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		hash, err := tlog.ParseHash(string(line))
		if err != nil {
			return nil, errProof
		}
		p.path = append(p.path, hash)
	}
	if !bytes.Equal(p.append(make([]byte, 0, len(text))), text) {
		return nil, fmt.Errorf("%w in its one spelling", errProof)
	}
	return p, nil
}

// splitProofs takes a file of several proofs apart.
func splitProofs(text []byte) (list [][]byte) {
	for {
		next := bytes.Index(text[min(1, len(text)):], []byte("\n"+ProofHeader))
		if next < 0 {
			return append(list, text)
		}
		next += 2
		list, text = append(list, text[:next]), text[next:]
	}
}
