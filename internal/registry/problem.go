package registry

import (
	"cmp"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a registry, and where.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0 where the problem has no place in the file
	Path         string // such as services.github.actions.list_issues.path
	What         string
}

// Error returns "file:line:column: path: what", leaving out what is not known.
func (p Problem) Error() string {
	var parts []string
	if at := (Position{p.File, p.Line, p.Column}).String(); at != "" {
		parts = append(parts, at)
	}
	if p.Path != "" {
		parts = append(parts, p.Path)
	}
	return strings.Join(append(parts, p.What), ": ")
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
