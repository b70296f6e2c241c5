package registry

import (
	"cmp"
	"slices"
	"strings"

	"agentgw/internal/literal"
)

// Problem is one thing that is wrong with a registry, and where.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0 where the problem has no place in the file
	Path         string // such as services.github.actions.list_issues.path; ".": the whole file
	What         string
}

// NewProblem makes the Problem of a place. Names and values of the file may stand
// in path and what: neither shows a gateway's key (see literal.Mask).
func NewProblem(at Position, path, what string) Problem {
	return Problem{File: at.File, Line: at.Line, Column: at.Column, Path: literal.Mask(path), What: literal.Mask(what)}
}

// Error returns "file:line:column: path: what", leaving out what is not known.
func (p Problem) Error() string {
	if at := p.Where(); at != "" {
		return at + ": " + p.What
	}
	return p.What
}

// Where returns "file:line:column: path", leaving out what is not known. It is for
// whoever may not see the values of the file, which What may quote.
func (p Problem) Where() string {
	at := Position{p.File, p.Line, p.Column}.String()
	switch {
	case at == "" || p.Path == "":
		return at + p.Path
	case p.Path == ".":
		return at // which tells as much
	}
	return at + ": " + p.Path
}

// Problems is everything that is wrong with a registry, in the order of the
// file. As an error it prints one problem a line.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Sort puts the problems in the order in which a reader of the file meets them,
// and those without a place in a file behind them.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
