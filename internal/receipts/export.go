package receipts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// ExportHeader is the first line of an export of version 1.
const ExportHeader = exportPrefix + `{"v":1}}` + "\n"

const exportPrefix = `{"export":`

// ErrNoTenant: nothing in the log that is under a signature is of this tenant.
var ErrNoTenant = errors.New("no receipt of this tenant is in the log and under a signature")

// Exported is what an export came to.
type Exported struct {
	Origin  string `json:"tree"`    // of the tenant's tree
	Size    uint64 `json:"size"`    // records of the tenant
	Shown   uint64 `json:"records"` // of which so many stand in the export
	LeftOut uint64 `json:"left_out"`
	Pruned  uint64 `json:"pruned"` // of those left out: removed by retention
}

// Export makes the file out: the records of one tenant that keep chooses, or all
// where it is nil, with what proves them. VerifyExport verifies it with nothing
// but the log's verifier key, and it shows nothing of other tenants. dir is a data
// folder with its signing key; a gateway may be running on it.
//
// It reads the log once, up to its newest checkpoint, and holds of it what a
// start does. out appears whole and synced, or not at all, and is never written
// over: the error is fs.ErrExist where it is there. progress is that of Verify.
func Export(ctx context.Context, dir, tenant string, keep func(*Record) bool, out string, progress func(done, total int64)) (*Exported, error) {
	if tenant == "" {
		return nil, ErrNoTenant // those who have none have no tree
	}
	folder, err := Folder(dir)
	if err != nil {
		return nil, err
	}
	if within(folder, out) {
		return nil, fmt.Errorf("%s: an export does not belong into the folder of the log itself", out)
	}
	var done *Exported
	err = whilePruned(folder, func() error {
		return createWhole(out, func(w io.Writer) (err error) {
			done, err = exportTo(ctx, w, dir, folder, tenant, keep, progress)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

func exportTo(ctx context.Context, out io.Writer, dir, folder, tenant string, keep func(*Record) bool, progress func(done, total int64)) (*Exported, error) {
	key, err := loadSigning(realDisk{}, dir, signingKeyFile)
	if err != nil {
		return nil, err
	}
	log, err := key.covered(folder)
	if err != nil {
		return nil, err
	}
	defer log.reader.close()
	e := exporting{out: out, keep: keep}
	e.text.WriteString(ExportHeader)
	e.begin(log.pruned, tenant)
	// What is written meanwhile was believed on the way: where the log does not
	// hold, the file never gets its name.
	err = log.read(progress, func(at event) error {
		if at.kind == aRecord && at.record.Tenant == tenant {
			if err := e.take(at); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	switch {
	case err != nil:
		return nil, err
	case e.Shown+e.LeftOut == 0:
		return nil, ErrNoTenant
	}
	head := log.branches[tenant].head()
	signed, err := key.signTree(head)
	if err != nil {
		return nil, err
	}
	e.left.appendTo(&e.text)
	e.text.Write(appendCheckpointLine(nil, signed))
	e.Origin, e.Size = head.Origin, head.Size
	return &e.Exported, e.flush()
}

// exporting is an export that is being written.
type exporting struct {
	Exported
	out  io.Writer
	keep func(*Record) bool
	left run
	text bytes.Buffer // that is to be written
}

// begin leaves out what retention has removed of the tenant's records.
func (e *exporting) begin(p *pruned, tenant string) {
	if p == nil {
		return
	}
	for _, t := range p.tenants {
		if t.name == tenant {
			e.left = slices.Clone(t.tree)
			e.Pruned, e.LeftOut = t.size(), t.size()
		}
	}
}

// take takes the tenant's next record.
func (e *exporting) take(at event) error {
	if e.keep != nil {
		r, err := ParseRecord(at.line) // of which the walk may have only skimmed the line
		if err != nil {
			return fmt.Errorf("%s: %w", at.at, err)
		}
		if !e.keep(r) {
			e.LeftOut++
			e.left.add(subtree{first: at.record.Seq - 1, root: at.leaf})
			return nil
		}
	}
	e.Shown++
	e.left.appendTo(&e.text)
	e.text.Write(at.line)
	e.text.WriteByte('\n')
	if e.text.Len() < readSize {
		return nil
	}
	return e.flush()
}

func (e *exporting) flush() error {
	_, err := e.text.WriteTo(e.out)
	return err
}

// within reports whether a file of that name is to stand in folder, where the log
// would take it for a segment.
func within(folder, name string) bool {
	a, err := os.Stat(folder)
	b, err2 := os.Stat(filepath.Dir(name))
	return err == nil && err2 == nil && os.SameFile(a, b)
}

// createWhole makes a file that has its name only once write has written all of
// it and it is on disk. It replaces nothing: that is fs.ErrExist.
func createWhole(name string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(name); err == nil {
		return &os.PathError{Op: "create", Path: name, Err: os.ErrExist}
	}
	folder := filepath.Dir(name)
	f, err := os.CreateTemp(folder, ".agentgw-export-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, replaces nothing that has come meanwhile.
	if err := os.Link(f.Name(), name); err != nil {
		if _, there := os.Lstat(name); there == nil {
			return err
		}
		if err := os.Rename(f.Name(), name); err != nil { // a file system without links
			return err
		}
	}
	return realDisk{}.syncDir(folder)
}
