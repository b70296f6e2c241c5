package main

import (
	"slices"
	"time"

	"agentgw/internal/receipts"
)

// worst are the exit codes of verify, the worst first.
var worst = []int{exitNotHold, exitUsage, exitCannotRun, exitUnproven, exitDone}

// verdictOf is an exit code of verify in words.
func verdictOf(code int) receipts.Verdict {
	switch code {
	case exitDone:
		return receipts.Holds
	case exitUnproven:
		return receipts.Unproven
	case exitUsage:
		return receipts.Untrusted
	case exitCannotRun:
		return "cannot be read"
	}
	return receipts.Broken
}

// verifySeveral verifies several logs, and tells of each and of all.
func (c *cli) verifySeveral(paths, vkeys []string, pins []pin, asJSON bool) error {
	s := several{vkeys: vkeys, pins: pins}
	if err := s.assign(paths); err != nil {
		return exit(exitUsage, err)
	}
	code := exitDone
	worsen := func(by int) {
		if slices.Index(worst, by) < slices.Index(worst, code) {
			code = by
		}
	}
	all := altogether{WithoutSeal: []string{}, Missing: append([]lostLog{}, s.lost...)}
	var list []oneOfSeveral
	for _, a := range s.logs {
		x := examined{path: a.path, err: a.err, code: exitCannotRun}
		if a.err == nil {
			x = examine(a.path, a.vkey, a.anchor, c.progress())
		}
		o := oneOfSeveral{Path: a.path, Origin: a.origin, Exit: x.code, Log: x.log, Export: x.export}
		if x.err != nil {
			o.Error = x.err.Error()
		}
		if a.unknown && a.origin != "" {
			o.Key = "none of the given keys is of this log"
		}
		if x.log != nil {
			now := time.Now()
			o.State = x.log.State(now)
			o.End = endInWords(o.State, x.log, now)
		}
		worsen(x.code)
		all.add(o)
		list = append(list, o)
	}
	for _, l := range s.lost {
		if worsen(exitUnproven); l.Anchor != "" {
			worsen(exitNotHold)
		}
	}
	all.Verdict = verdictOf(code)
	var err error
	if asJSON {
		err = c.printJSON(struct {
			Together altogether     `json:"together"`
			Logs     []oneOfSeveral `json:"logs"`
		}{all, list})
	} else {
		err = printSeveral(c.stdout, list, all)
	}
	if err != nil {
		return exit(exitCannotRun, err)
	}
	if code != exitDone {
		return exit(code, nil)
	}
	return nil
}
