package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// maxProofs bounds how many proofs of one receipt a file holds; two are usual.
const maxProofs = 64

// ProofReport is what VerifyProof found.
type ProofReport struct {
	Verdict Verdict  `json:"verdict"` // Holds, Broken or Untrusted
	Why     string   `json:"why"`
	ID      string   `json:"id,omitempty"`
	Records []Proven `json:"records,omitempty"` // none unless all hold

	Proven    []string `json:"proven,omitempty"`
	NotProven []string `json:"not_proven,omitempty"`
}

// Proven is a record that a proof shows.
type Proven struct {
	Record json.RawMessage `json:"record"`
	Origin string          `json:"origin"` // of the tree that it is in
	Index  uint64          `json:"index"`  // in that tree
	Size   uint64          `json:"size"`   // of that tree as it was signed
}

// VerifyProof checks a file of the proofs of one receipt with the verifier key of
// its log, and nothing else. The error is ErrUsage for a key that is none; a text
// that is no proof does not hold.
func VerifyProof(text []byte, vkey string) (*ProofReport, error) {
	keys, err := newTreeKeys(vkey)
	if err != nil {
		return nil, errKey
	}
	report := new(ProofReport)
	parts := splitProofs(text)
	if len(parts) > maxProofs {
		parts = parts[:maxProofs+1] // which is one too many: the last is looked at and refused
	}
	for i, part := range parts {
		proven, id, err := verifyInclusion(part, keys)
		if err == nil && (i > 0 && id != report.ID || i == maxProofs) {
			err = errors.New("the proofs in one file are to be of one receipt")
		}
		if err != nil {
			verdict := Broken
			if errors.Is(err, errNotTheKey) {
				verdict = Untrusted
			}
			why := fmt.Sprintf("proof %d of %d: %v", i+1, len(parts), err)
			if i == len(parts)-1 && bytes.HasSuffix(part, []byte("\n\n")) {
				why += "; the file has a line end too many, as jq -r adds one: write it with jq -j"
			}
			return &ProofReport{Verdict: verdict, Why: why}, nil
		}
		report.ID, report.Records = id, append(report.Records, *proven)
	}
	report.Verdict = Holds
	report.Why = "the log has written these records as they stand here"
	report.explain()
	return report, nil
}

func verifyInclusion(text []byte, keys *treeKeys) (*Proven, string, error) {
	p, err := parseInclusion(text)
	if err != nil {
		return nil, "", err
	}
	r, err := ParseRecord(p.line)
	if err != nil {
		return nil, "", fmt.Errorf("the record: %w", err)
	}
	c, err := openStored(p.signed, keys)
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unverified):
		return nil, "", fmt.Errorf("the checkpoint is %w%s", errNotTheKey, keys.rotated(unverified))
	case err != nil:
		return nil, "", fmt.Errorf("the checkpoint: %w", err)
	}
	leaf := tlog.RecordHash(p.line)
	if p.index >= c.Size || tlog.CheckRecord(p.path, int64(c.Size), c.Root, int64(p.index), leaf) != nil {
		return nil, "", fmt.Errorf("receipt %s: the record is not leaf %d of the tree that was signed", r.ID, p.index)
	}
	if err := keys.fits(c.Origin, r, p.index, leaf); err != nil {
		return nil, "", fmt.Errorf("receipt %s: %w", r.ID, err)
	}
	return &Proven{Record: p.line, Origin: c.Origin, Index: p.index, Size: c.Size}, r.ID, nil
}

// fits reports why a record cannot be that leaf of the tree of that origin.
func (k *treeKeys) fits(origin string, r *Record, index uint64, leaf tlog.Hash) error {
	switch {
	case origin == k.log.Name():
		return nil // any record is in the log's tree
	case !k.isTree(origin):
		return fmt.Errorf("the checkpoint is of another log, %s", origin)
	case r.Tenant == "":
		return errors.New("a record without a tenant is in a tenant's tree")
	case r.Seq != index+1:
		return fmt.Errorf("record %d of its tenant is leaf %d, which is that of record %d", r.Seq, index, index+1)
	case index == 0 && origin != treeOrigin(k.log.Name(), newTreeID(k.log.Name(), leaf)):
		return errors.New("the tree has not its name from its first record")
	}
	return nil
}

func (r *ProofReport) explain() {
	first := r.Records[0]
	r.Proven = append(r.Proven, fmt.Sprintf("receipt %s: %s signed by the given key and unaltered", r.ID, count(len(r.Records), "record is", "records are")))
	if !slices.ContainsFunc(r.Records, func(p Proven) bool { return p.Origin != first.Origin }) {
		r.Proven = append(r.Proven, fmt.Sprintf("in the tree %s, which had %d records when it was signed", first.Origin, first.Size))
	}
	r.NotProven = append(r.NotProven,
		"that the receipt has no other records, and the tree no others of the same call",
		"that everybody is shown the same tree: verify the log with the checkpoint of this proof as its anchor")
}

func count[N int | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
