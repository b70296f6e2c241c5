package receipts

import (
	"errors"
	"fmt"
	"io"
)

// covered is a log in a folder as far as its newest checkpoint goes, for whoever
// holds its signing key and is to sign something of it without being its writer.
// The key must sign nothing that its writer would not: so nothing of it is to be
// signed or proven before read has returned nil.
type covered struct {
	*walker // the caller closes its reader
	newest  checkpoint
	signed  []byte // the newest checkpoint, under one signature
}

// covered begins to read the log in folder.
func (s *signing) covered(folder string) (*covered, error) {
	signed, err := NewestCheckpoint(folder)
	if err != nil {
		return nil, err
	}
	newest, err := openSigned(signed, s.verify)
	if err == nil && isBorder(signed) { // a proof's checkpoint has one signature
		signed, err = newest.sign(s.signer)
	}
	if err != nil {
		return nil, fmt.Errorf("the newest checkpoint: %w", err)
	}
	w, err := startWalker(realDisk{}, folder)
	if err != nil {
		return nil, err
	}
	w.skim()
	w.origin = s.origin
	return &covered{w, newest, signed}, nil
}

var errCovered = errors.New("all that the checkpoint covers was read")

// read reads all that the newest checkpoint covers. It returns nil only where that
// is what this key has signed, and where entries were removed, an entry of it speaks
// for what is left of them. What visit is told before is not to be believed.
// progress, which may be nil, is that of Verify.
func (c *covered) read(progress func(done, total int64), visit func(event) error) error {
	done, total := int64(0), bytesIn(c.reader.folder)
	err := c.toEnd(func(e event) error {
		done += int64(len(e.line)) + 1
		if e.kind == aBatch && progress != nil {
			progress(done, total)
		}
		if err := visit(e); err != nil {
			return err
		}
		if c.tree.size == c.newest.Size {
			return errCovered
		}
		return nil
	})
	if progress != nil {
		progress(total, total)
	}
	var damage *Damage
	switch {
	case err == io.EOF:
		err = errors.New("the log ends before its newest checkpoint")
	case errors.As(err, &damage):
	case !errors.Is(err, errCovered):
		return err
	case c.tree.root() != c.newest.Root:
		err = c.suspect("the newest checkpoint")
	default:
		return c.vouched(c.newest.Size)
	}
	if unvouched := c.vouched(c.tree.size); unvouched != nil {
		return fmt.Errorf("%w; up to there %w", err, unvouched) // which may be why
	}
	return err
}
