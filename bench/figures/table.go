package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// table is what is printed in the end: each figure with what the peer took, the
// ratio, and what is wanted.
type table struct {
	rows  []row
	notes []string
}

type row struct {
	figure, gateway, peer, ratio, wanted string
	met                                  bool
	judged                               bool
}

// compare adds a figure of which the ratio is wanted to be at most so much.
func (t *table) compare(figure, unit string, gateway, peer, ratio []float64, most float64) {
	t.beside(figure, unit, gateway, peer, ratio)
	last := &t.rows[len(t.rows)-1]
	last.wanted, last.met, last.judged = fmt.Sprintf("ratio ≤ %.2f", most), median(ratio) <= most, true
}

// exceed adds a figure of which the ratio is wanted to be at least so much.
func (t *table) exceed(figure, unit string, gateway, peer []float64, least float64) {
	ratio := ratios(gateway, peer)
	t.beside(figure, unit, gateway, peer, ratio)
	last := &t.rows[len(t.rows)-1]
	last.wanted, last.met, last.judged = fmt.Sprintf("ratio ≥ %.2f", least), median(ratio) >= least, true
}

// beside adds a ratio of which nothing is wanted.
func (t *table) beside(figure, unit string, gateway, peer, ratio []float64) {
	t.rows = append(t.rows, row{
		figure: figure, gateway: number(median(gateway), unit), peer: number(median(peer), unit),
		ratio: fmt.Sprintf("%.2f (%.2f to %.2f)", median(ratio), slices.Min(ratio), slices.Max(ratio)),
	})
}

// bound adds a figure that is wanted to be at most so much; peer is what the
// peer took, "" where that has no meaning.
func (t *table) bound(figure, unit string, gateway float64, peer string, most float64) {
	t.rows = append(t.rows, row{figure, number(gateway, unit), peer, "", "≤ " + number(most, unit), gateway <= most, true})
}

// least adds a figure that is wanted to be at least so much.
func (t *table) least(figure, unit string, gateway float64, peer string, least float64) {
	t.rows = append(t.rows, row{figure, number(gateway, unit), peer, "", "≥ " + number(least, unit), gateway >= least, true})
}

// report adds a figure of which nothing is wanted.
func (t *table) report(figure, unit string, gateway float64, peer string) {
	t.rows = append(t.rows, row{figure: figure, gateway: number(gateway, unit), peer: peer})
}

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "figure\tagentgw\tpeer\tratio (range)\twanted\t\n")
	for _, r := range t.rows {
		verdict := ""
		if r.judged && r.met {
			verdict = "met"
		} else if r.judged {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.figure, r.gateway, r.peer, r.ratio, r.wanted, verdict)
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\n%s/%s, %d cores, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	fmt.Fprintln(out, "the peer is a bare, tuned httputil.ReverseProxy where no other is named")
	for _, n := range t.notes {
		fmt.Fprintln(out, n)
	}
}

func number(n float64, unit string) string {
	switch {
	case n >= 1000 || n == float64(int64(n)):
		return fmt.Sprintf("%.0f %s", n, unit)
	case n >= 100:
		return fmt.Sprintf("%.1f %s", n, unit)
	}
	return fmt.Sprintf("%.2f %s", n, unit)
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(list))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// ratios divides round by round: what slowed one contender down in a round
// slowed the other down as well.
func ratios(a, b []float64) []float64 {
	list := make([]float64, len(a))
	for i := range a {
		list[i] = a[i] / b[i]
	}
	return list
}

func less(a, b []float64) []float64 {
	list := make([]float64, len(a))
	for i := range a {
		list[i] = a[i] - b[i]
	}
	return list
}
