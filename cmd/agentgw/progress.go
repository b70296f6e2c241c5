package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
)

// progress shows how far a long work is, on a terminal only.
func (c *cli) progress() func(done, total int64) {
	f, ok := c.stderr.(*os.File)
	if !ok || !isatty.IsTerminal(f.Fd()) {
		return nil
	}
	return progressLine(f, time.Now)
}

// progressLine writes one line over and over, once a second after the first: what
// is done and about how long the rest takes. At the end it takes the line away.
func progressLine(w io.Writer, now func() time.Time) func(done, total int64) {
	began := now()
	next, shown := began.Add(time.Second), false
	return func(done, total int64) {
		const clear = "\r\x1b[K"
		switch t := now(); {
		case done >= total && shown:
			fmt.Fprint(w, clear)
			shown = false
		case done > 0 && done < total && !t.Before(next):
			left := time.Duration(float64(t.Sub(began)) / float64(done) * float64(total-done))
			fmt.Fprintf(w, clear+"read %d of %d MiB (%d %%), %s left", done>>20, total>>20, 100*done/total, left.Round(time.Second))
			next, shown = t.Add(time.Second), true
		}
	}
}
