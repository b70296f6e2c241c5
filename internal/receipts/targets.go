package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
)

// target is a checkpoint from beside the segments that the tree has to meet.
type target struct {
	checkpoint
	name    string
	by      officeKey // that has signed it; of a border, the older
	signed  []byte
	met     bool
	removed bool // some of the entries that it covers were, so that it cannot be met
}

// treeTarget is a checkpoint of a tenant's tree that this tree has to meet.
type treeTarget struct {
	checkpoint
	by officeKey

	met, removed bool
}

// readAnchor reads the anchor; done means that the report is final.
func (v *verification) readAnchor(anchor []byte) (done bool, err error) {
	by := v.trusted
	c, why, err := openAnchor(anchor, v.trusted.trees)
	for _, k := range v.candidates[1:] {
		if err == nil && why == "" {
			break
		}
		if other, otherwise, failed := openAnchor(anchor, k.trees); failed == nil && otherwise == "" {
			c, why, err, by = other, "", nil, k
		}
	}
	switch {
	case err != nil:
		return true, err
	case why != "":
	case c.Origin == v.origin:
		v.anchor = &target{checkpoint: c, name: "the anchor", by: by}
		v.report.Anchor = c.Size
		return false, nil
	case c.Size > 0:
		v.tenant = &treeTarget{checkpoint: c, by: by}
		v.report.TreeAnchor = &TreeAnchor{Origin: c.Origin, Size: c.Size}
		return false, nil
	default: // it covers nothing, and counts as none
		return false, nil
	}
	v.report.Verdict, v.report.Why = Untrusted, why
	return true, nil
}

// asciiSpace is what may stand around an anchor.
const asciiSpace = " \t\n\v\f\r"

// openAnchor opens a checkpoint that was kept elsewhere, of the log or of a
// tenant's tree. why tells that it cannot be trusted.
func openAnchor(anchor []byte, keys *treeKeys) (c checkpoint, why string, err error) {
	// The line end of a note is easily lost on the way through a shell.
	c, err = openCheckpoint(fmt.Appendf(nil, "%s\n", bytes.Trim(anchor, asciiSpace)), keys)
	var unverified *note.UnverifiedNoteError
	var forged *note.InvalidSignatureError
	switch {
	case err == nil && (c.Origin == keys.log.Name() || keys.isTree(c.Origin)):
		return c, "", nil
	case err == nil:
		return c, "the anchor is of another log, " + c.Origin, nil
	case errors.As(err, &unverified):
		return c, "the anchor is not signed by the given key" + keys.rotated(unverified), nil
	case errors.As(err, &forged):
		return c, "the anchor's signature is forged: it names the given key and is not by it", nil
	}
	return c, "", fmt.Errorf("the anchor %w: %w", ErrUsage, err)
}

// readCheckpointFile reads the newest checkpoint before the segments are read:
// they only grow, so by then they hold all that it covers.
func (v *verification) readCheckpointFile(folder string) error {
	signed, err := os.ReadFile(filepath.Join(folder, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// Written without a sync: empty is what a crash of the machine leaves.
	if len(bytes.Trim(signed, "\x00")) == 0 {
		return nil
	}
	by := v.trusted
	oldest := signed // of a border, under the older key's signature alone
	if isBorder(signed) {
		oldest = signedAlone(signed)[0]
	}
	c, err := openStored(oldest, by.known)
	for _, k := range v.candidates[1:] {
		if err == nil {
			break
		}
		if other, failed := openStored(oldest, k.known); failed == nil {
			c, err, by = other, nil, k
		}
	}
	if err != nil {
		v.fault = fmt.Errorf("the file %s: %w", checkpointFile, err)
		return nil
	}
	v.report.Checkpoints++
	v.published = &target{checkpoint: c, name: "the file " + checkpointFile, by: by, signed: signed}
	if c.Origin != v.origin {
		v.fault = fmt.Errorf("the file %s is of another log, %s", checkpointFile, c.Origin)
	}
	return nil
}
