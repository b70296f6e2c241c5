package receipts

import (
	"bytes"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// looked is a line of a log and what can be told of it without the lines before
// it. That is most of the work of reading a log, and can be done for many lines
// at once; what is left to the walk is order.
type looked struct {
	line    []byte // good until the next one is asked for
	text    string // of it, or "": as good as anybody wants
	at      Position
	segment uint64 // the first entry of the file
	begins  bool   // it is the first line of the file

	record *Record   // of a record line; good as long as line is
	leaf   tlog.Hash // of it
	wrong  error     // why it is no record
	forged error     // of a checkpoint line: why it is not signed by one of the looker's keys, alone
	by     uint32    // and the hash of the one that it is signed by
}

// looker is how lines are looked at. It is for one goroutine; a copy is another.
type looker struct {
	parser parser
	skims  bool           // of records only what skim takes
	signed note.Verifiers // where set, the signatures of checkpoint lines are checked
}

// look fills in what x.line says.
func (l *looker) look(x *looked) {
	switch {
	case x.begins:
	case bytes.HasPrefix(x.line, []byte(`{"v":`)):
		l.record(x)
	case l.signed != nil && bytes.HasPrefix(x.line, []byte(checkpointPrefix)):
		var signed []byte
		if signed, x.forged = parseCheckpointLine(x.line); x.forged == nil {
			_, x.by, x.forged = openStoredBy(signed, l.signed)
		}
	}
}

func (l *looker) record(x *looked) {
	if x.record == nil {
		x.record = new(Record)
	}
	skimmed := false
	if l.skims {
		*x.record, skimmed = skim(x.line)
	}
	if !skimmed {
		if x.text == "" {
			x.text = string(x.line)
		}
		x.wrong = l.parser.parse(x.text, x.record)
	}
	if x.wrong == nil {
		x.leaf = tlog.RecordHash(x.line)
	}
}

// lines are those of a log, looked at, in order. The errors are the reader's.
type lines interface{ next() (looked, error) }

// oneByOne looks at each line when it is asked for: of a log that grows.
type oneByOne struct {
	reader *reader
	looker looker
}

func (o *oneByOne) next() (looked, error) {
	line, at, begins, err := o.reader.next()
	x := looked{line: line, at: at, segment: o.reader.first, begins: begins}
	if err == nil {
		o.looker.look(&x)
	}
	return x, err
}
