package receipts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// VerifyExport checks an export of a tenant's records with the verifier key of
// its log and nothing else, and against an older checkpoint of that tenant's tree
// where anchor is not nil. Its memory is a few lines and 65,536 ids, however long the export is.
// total is how many bytes there are to read, for progress, which may be nil.
//
// An export that does not hold is a report. An error means that it could not be
// read, or (ErrUsage) that vkey or anchor cannot be used.
func VerifyExport(export io.Reader, total int64, vkey string, anchor []byte, progress func(done, total int64)) (*ExportReport, error) {
	keys, err := newTreeKeys(vkey)
	if err != nil {
		return nil, errKey
	}
	v := &exportVerification{keys: keys, sums: summing{}, report: &ExportReport{TrustedKey: vkey, Kinds: map[string]uint64{}}}
	if anchor != nil {
		if done, err := v.readAnchor(anchor); done || err != nil {
			return v.report, err
		}
	}
	in := &exportLines{in: bufio.NewReaderSize(export, maxLine+1), progress: progress, total: total}
	err = v.read(in)
	switch {
	case errors.Is(err, errUnreadable):
		return nil, err
	case errors.Is(err, errNotTheKey):
		v.report.Verdict, v.report.Why = Untrusted, err.Error()
	case err != nil:
		v.report.Verdict, v.report.Why = Broken, err.Error()
	default:
		if v.report.LeftOut == 0 {
			v.report.InFlight, v.report.Alone = v.ids.intents, v.ids.alone
		}
		v.report.conclude()
	}
	return v.report, nil
}

type exportVerification struct {
	report *ExportReport
	sums   summing
	ids    closings
	keys   *treeKeys
	anchor *checkpoint
	missed bool // the tree had its size and another root
	tree   frontier
	first  tlog.Hash // the leaf from which the tree has its name
	last   *subtree  // that was left out
	shown  time.Time // of the record in the line before; zero where that was left out
}

// readAnchor reads the anchor; done means that the report is final.
func (v *exportVerification) readAnchor(anchor []byte) (done bool, err error) {
	c, why, err := openAnchor(anchor, v.keys)
	switch {
	case err != nil:
		return true, err
	case why != "":
	case c.Origin == v.keys.log.Name():
		why = "the anchor is a checkpoint of the whole log, of which an export shows nothing; it takes one of the tenant's tree"
	default:
		if c.Size > 0 {
			v.anchor, v.report.Anchor = &c, c.Size
		}
		return false, nil
	}
	v.report.Verdict, v.report.Why = Untrusted, why
	return true, nil
}

// read takes the export line by line. An error is why it does not hold.
func (v *exportVerification) read(in *exportLines) error {
	for {
		line, err := in.next()
		if err == io.EOF {
			return errors.New("it ends without a checkpoint: the rest is missing")
		}
		if err != nil {
			return err
		}
		v.report.Lines = in.number
		switch {
		case in.number == 1:
			err = exportHeader(line)
		case bytes.HasPrefix(line, []byte(`{"v":`)):
			err = v.record(line)
		case bytes.HasPrefix(line, []byte(leftOutPrefix)):
			err = v.leftOut(line)
		case bytes.HasPrefix(line, []byte(checkpointPrefix)):
			line = bytes.Clone(line) // looked at once it is known to be the last
			if _, err := in.next(); err == nil || !errors.Is(err, io.EOF) && !errors.Is(err, errUnreadable) {
				return errors.New("something stands behind the checkpoint, which is the last line")
			} else if err != io.EOF {
				return err
			}
			if err := v.checkpoint(line); err != nil {
				return fmt.Errorf("the checkpoint in line %d: %w", v.report.Lines, err)
			}
			return v.whole()
		default:
			err = errors.New("not a line of an export")
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", in.number, err)
		}
		v.meetAnchor()
	}
}

func exportHeader(line []byte) error {
	switch {
	case rendersAs(line, []byte(ExportHeader)):
		return nil
	case bytes.HasPrefix(line, []byte(exportPrefix)):
		return errors.New("an export of a version that this program does not know")
	}
	return errors.New("not an export of receipts")
}

func (v *exportVerification) record(line []byte) error {
	r, err := ParseRecord(line)
	rep := v.report
	switch {
	case err != nil:
		return err
	case r.Tenant == "":
		return fmt.Errorf("receipt %s is of no tenant", r.ID)
	case rep.Tenant != "" && r.Tenant != rep.Tenant:
		return fmt.Errorf("receipt %s is of tenant %s, the others of %s", r.ID, r.Tenant, rep.Tenant)
	case r.Seq != v.tree.size+1:
		return fmt.Errorf("receipt %s: record %d of its tenant stands where record %d is to", r.ID, r.Seq, v.tree.size+1)
	}
	rep.Tenant = r.Tenant
	rep.count(r)
	v.shown = r.Time
	v.sums.add(r, &rep.Summarised)
	_ = v.ids.see(r) // whether an id comes twice only the log tells
	v.push(subtree{first: v.tree.size, root: tlog.RecordHash(line)})
	return nil
}

func (v *exportVerification) leftOut(line []byte) error {
	s, err := parseLeftOut(line, v.tree.size)
	switch {
	case err != nil:
		return err
	case s.alone() && s.level > 0:
		return errors.New("the tenant's first record is to be left out by itself: the tree has its name from it")
	case v.last != nil && v.last.joins(s) && !v.last.alone():
		return errors.New("two lines for records that are left out stand where one is to")
	}
	v.report.LeftOut += s.count()
	v.shown = time.Time{}
	v.push(s)
	v.last = &s
	return nil
}

func (v *exportVerification) push(s subtree) {
	if s.first == 0 {
		v.first = s.root
	}
	v.tree.graft(s)
}

// meetAnchor compares the tree with the anchor where it has its size. In the
// middle of what was left out it never has.
func (v *exportVerification) meetAnchor() {
	if a := v.anchor; a != nil && v.tree.size == a.Size {
		v.report.AnchorMet = v.tree.root() == a.Root
		v.missed = !v.report.AnchorMet
		if v.report.AnchorMet && !v.shown.IsZero() {
			v.report.AnchorTime = &Instant{v.shown}
		}
	}
}

func (v *exportVerification) checkpoint(line []byte) error {
	signed, err := parseCheckpointLine(line)
	if err != nil {
		return err
	}
	c, err := openStored(signed, v.keys)
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unverified):
		return fmt.Errorf("%w%s", errNotTheKey, v.keys.rotated(unverified))
	case err != nil:
		return err
	case !v.keys.isTree(c.Origin):
		return fmt.Errorf("it is of %s, which is no tenant's tree of this log", c.Origin)
	case c.Size != v.tree.size:
		return fmt.Errorf("it covers %d records, and the export has %d: some are missing, or too many", c.Size, v.tree.size)
	case c.Root != v.tree.root():
		return fmt.Errorf("one of the %s is not what it was signed over", v.suspects(c))
	case c.Size == 0:
		return errors.New("it covers nothing")
	case c.Origin != treeOrigin(v.keys.log.Name(), newTreeID(v.keys.log.Name(), v.first)):
		return errors.New("the tree has not its name from the tenant's first record")
	}
	v.report.Origin, v.report.Size, v.report.Root = c.Origin, c.Size, c.Root.String()
	return nil
}

// suspects are the records of which one is not what c was signed over: an anchor
// of the same tree tells on which side of it.
func (v *exportVerification) suspects(c checkpoint) string {
	first, last := uint64(1), c.Size
	switch a := v.anchor; {
	case a == nil || a.Origin != c.Origin:
	case v.missed:
		last = a.Size
	case v.report.AnchorMet:
		first = a.Size + 1
	}
	return fmt.Sprintf("records %d to %d", first, last)
}

// whole judges the anchor, now that all has been read.
func (v *exportVerification) whole() error {
	switch a := v.anchor; {
	case a == nil:
	case a.Origin != v.report.Origin:
		return fmt.Errorf("the anchor is of another tenant's tree, %s", a.Origin)
	case a.Size > v.report.Size:
		return fmt.Errorf("the export has %d records, and the anchor covers %d: records are missing", v.report.Size, a.Size)
	case v.missed:
		return fmt.Errorf("one of the records 1 to %d is not what the anchor was signed over", a.Size)
	}
	return nil
}

// errUnreadable: the export could not be read, which says nothing of it.
var errUnreadable = errors.New("reading the export")

// exportLines are the lines of an export.
type exportLines struct {
	in          *bufio.Reader
	number      int // of the line that came last, from 1
	done, total int64
	progress    func(done, total int64)
}

// next returns the next line without its end; it is good until the next call.
// The end is io.EOF.
func (l *exportLines) next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	switch {
	case err == io.EOF && len(line) == 0:
		return nil, io.EOF
	case err == io.EOF:
		return nil, fmt.Errorf("line %d has no end: the rest is missing", l.number+1)
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("line %d: %w", l.number+1, errLongLine)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	l.number++
	l.done += int64(len(line))
	if l.progress != nil && l.number%1024 == 0 {
		l.progress(l.done, l.total)
	}
	return line[:len(line)-1], nil
}

// IsExport reports whether a file that begins so is to be an export, of whatever
// version.
func IsExport(begin []byte) bool { return strings.HasPrefix(string(begin), exportPrefix) }
