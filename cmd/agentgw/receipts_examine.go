package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"agentgw/internal/receipts"
)

// examined is what came of verifying one log or one export: one of log, export and err
// is set.
type examined struct {
	path   string
	log    *receipts.Report
	export *receipts.ExportReport
	err    error
	code   int
}

// examine verifies what lies at path with a key, and with an anchor where that is not nil.
func examine(path, vkey string, anchor []byte, progress func(done, total int64)) (x examined) {
	x.path = path
	if f, ok := openExport(path); ok {
		defer func() { _ = f.Close() }()
		var info os.FileInfo
		if info, x.err = f.Stat(); x.err == nil {
			x.export, x.err = receipts.VerifyExport(f, info.Size(), vkey, anchor, progress)
		}
	} else {
		x.log, x.err = receipts.Verify(path, vkey, anchor, progress)
	}
	switch {
	case errors.Is(x.err, receipts.ErrUsage):
		x.code = exitUsage
	case x.err != nil:
		x.code = exitCannotRun
	case x.log != nil:
		x.code = x.log.Verdict.ExitCode()
	default:
		x.code = x.export.Verdict.ExitCode()
	}
	if x.err != nil {
		x.log, x.export = nil, nil
	}
	return x
}

// found is the report.
func (x *examined) found() any {
	if x.log != nil {
		return x.log
	}
	return x.export
}

func (x *examined) print(out io.Writer) error {
	if x.log != nil {
		return printVerification(out, x.log)
	}
	return printExport(out, x.export)
}

// readKeys reads the files of verifier keys, each of a line or of several.
func readKeys(files []string) ([]string, error) {
	if len(files) == 0 {
		return nil, exit(exitUsage, errors.New("verify needs --vkey FILE: the verifier key, from where the log's keeper cannot change it"))
	}
	var keys []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, exit(exitCannotRun, fmt.Errorf("--vkey: %w", err))
		}
		for line := range strings.Lines(strings.TrimSpace(string(text))) {
			if line = strings.TrimSpace(line); line != "" {
				keys = append(keys, line)
			}
		}
		if strings.TrimSpace(string(text)) == "" {
			keys = append(keys, "") // which is none, and is said to be
		}
	}
	return keys, nil
}

// pin is an anchor that was given.
type pin struct {
	file   string
	signed []byte // not nil: an empty file is an anchor that got lost, not none
}

func readAnchors(files []string) ([]pin, error) {
	var pins []pin
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, exit(exitCannotRun, fmt.Errorf("--anchor: %w", err))
		}
		pins = append(pins, pin{file, append([]byte{}, text...)})
	}
	return pins, nil
}
