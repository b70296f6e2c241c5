package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/receiptindex"
	"agentgw/internal/receipts"
)

// listFrom lists the receipts of the paths, or else of all replicas where they share a
// database, or else of the data folder. Its errors carry the exit code.
func (c *cli) listFrom(ctx context.Context, cmd *cobra.Command, paths []string, q receipts.Query, cursor string) (rows []receipts.Found, more string, err error) {
	if len(paths) == 0 {
		settings, _, err := c.settingsWithoutRegistry(cmd)
		if err != nil {
			return nil, "", err
		}
		if !settings.DatabaseURL.Empty() {
			return listFleet(ctx, settings, q, cursor)
		}
	}
	folders, err := c.receiptsFolders(cmd, paths)
	if err != nil {
		return nil, "", err
	}
	from, err := cursors(cursor, len(folders))
	if err != nil {
		return nil, "", exit(exitUsage, err)
	}
	if rows, more, err = listOf(ctx, folders, q, from); err != nil {
		return nil, "", exit(exitCannotRun, err)
	}
	return rows, more, nil
}

// listFleet lists the receipts of all replicas from their database.
func listFleet(ctx context.Context, settings *config.Settings, q receipts.Query, cursor string) (rows []receipts.Found, more string, err error) {
	index, err := openIndex(settings)
	if err != nil {
		return nil, "", exit(exitCannotRun, err)
	}
	defer func() { _ = index.Close() }()
	page, err := index.List(ctx, q, cursor)
	switch {
	case errors.Is(err, receiptindex.ErrCursor):
		return nil, "", exit(exitUsage, fmt.Errorf("--cursor %q: %w", cursor, err))
	case err != nil:
		return nil, "", exit(exitCannotRun, fmt.Errorf("the database with the receipts of all replicas: %w; `receipts list PATH` reads a data folder", err))
	}
	for _, f := range page.Receipts {
		rows = append(rows, f.Found)
	}
	return rows, page.Next, nil
}

// exhausted is in the place of a log's cursor where a list has come to its end.
const exhausted = "-"

// cursors reads where a list of so many logs goes on: a number for each of them, with
// commas between; "" begins.
func cursors(text string, logs int) ([]string, error) {
	list := strings.Split(text, ",")
	if text == "" {
		list = make([]string, logs)
	}
	if len(list) != logs {
		return nil, fmt.Errorf("--cursor %q: is of %d logs, and %d are listed", text, len(list), logs)
	}
	for i, at := range list {
		if list[i] == "" {
			list[i] = "0"
		} else if _, err := strconv.ParseUint(at, 10, 64); err != nil && at != exhausted {
			return nil, fmt.Errorf("--cursor %q: want what standard error said where the list before ended", text)
		}
	}
	return list, nil
}

// listOf lists the receipts of one log, or of several as if they were one: each in its
// own order, which is that of its entries, and between them by time. more is the cursor
// that goes on; "": there are no more.
func listOf(ctx context.Context, folders []string, q receipts.Query, from []string) (rows []receipts.Found, more string, err error) {
	type source struct {
		*receipts.Page
		at   string
		next int
	}
	var sources []*source
	for i, folder := range folders {
		s := &source{Page: &receipts.Page{}, at: from[i]}
		if s.at != exhausted {
			q.Cursor, _ = strconv.ParseUint(s.at, 10, 64)
			if s.Page, err = receipts.List(ctx, folder, q); err != nil {
				return nil, "", fmt.Errorf("%s: %w", folder, err)
			}
		}
		sources = append(sources, s)
	}
	for q.Limit == 0 || len(rows) < q.Limit {
		var best *source
		for _, s := range sources {
			if s.next == len(s.Receipts) {
				continue
			}
			if best == nil || before(s.Receipts[s.next], best.Receipts[best.next], q.Oldest) {
				best = s
			}
		}
		if best == nil {
			break
		}
		found := best.Receipts[best.next]
		rows = append(rows, found)
		best.next++
		best.at = strconv.FormatUint(found.Index, 10)
		if q.Oldest {
			best.at = strconv.FormatUint(found.Index+1, 10)
		}
	}
	var at []string
	left := false
	for _, s := range sources {
		if s.next == len(s.Receipts) && s.Next == 0 {
			s.at = exhausted
		} else {
			left = true
		}
		at = append(at, s.at)
	}
	if left {
		more = strings.Join(at, ",")
	}
	return rows, more, nil
}

// before reports whether a comes before b in a list.
func before(a, b receipts.Found, oldest bool) bool {
	if oldest {
		return a.Record.Time.Before(b.Record.Time)
	}
	return a.Record.Time.After(b.Record.Time)
}
