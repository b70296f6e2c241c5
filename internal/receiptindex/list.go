package receiptindex

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"agentgw/internal/receipts"
)

// Page is some of a fleet's receipts, in the order that was asked for: by time, and not by
// entry as those of one log. Next is the cursor of those that follow; "": there are none.
type Page struct {
	Receipts []Found
	Next     string
}

// Found is a receipt, and whose log it is of.
type Found struct {
	Origin string
	receipts.Found
}

// ErrCursor: a cursor is none that a Page had.
var ErrCursor = errors.New("is not the next of an earlier answer")

// List finds receipts of all logs that were shipped: of each attempt how it stands, which is
// its intent while it runs. q.Cursor and q.MaxScan are not looked at; cursor, where not empty,
// is a Page's Next.
func (x *Index) List(ctx context.Context, q receipts.Query, cursor string) (*Page, error) {
	s := selection{}
	tenant := q.Tenant
	if tenant != "" && !strings.Contains(tenant, ":") {
		tenant = "tenant:" + tenant
	}
	for _, c := range []struct{ column, value string }{
		{"tenant", tenant}, {"caller", q.Key}, {"service", q.Service}, {"decision", q.Decision}, {"request", q.Request},
	} {
		if c.value != "" {
			s.where(c.column+" = ?", kept(c.value))
		}
	}
	switch q.Why {
	case "":
	case receipts.Running:
		s.where("begins")
	default:
		s.where("? IN (code, ending)", kept(q.Why))
	}
	if !q.From.IsZero() {
		s.where("at >= ?", q.From.UnixMicro())
	}
	if !q.To.IsZero() {
		s.where("at <= ?", q.To.UnixMicro())
	}
	order, beyond := "DESC", "<"
	if q.Oldest {
		order, beyond = "ASC", ">"
	}
	if cursor != "" {
		at, entry, origin, err := parseCursor(cursor)
		if err != nil {
			return nil, err
		}
		s.where("(at, origin, entry) "+beyond+" (?, ?, ?)", at, origin, entry)
	}
	most := int64(math.MaxInt64)
	if q.Limit > 0 {
		most = int64(q.Limit) + 1 // one more tells that there is a next page
	}
	rows, err := x.db.QueryContext(ctx, fmt.Sprintf(`SELECT origin, entry, at, line FROM receipt_rows WHERE listed%s
		ORDER BY at %s, origin %s, entry %s LIMIT %d`, s.conditions.String(), order, order, order, most), s.args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err has told by then
	page, seen, last := &Page{}, 0, ""
	for rows.Next() {
		if seen++; q.Limit > 0 && seen > q.Limit {
			page.Next = last
			break
		}
		var f Found
		var at int64
		if err := rows.Scan(&f.Origin, &f.Index, &at, &f.Line); err != nil {
			return nil, err
		}
		last = fmt.Sprintf("%d.%d.%s", at, f.Index, f.Origin)
		if f.Record, err = receipts.ParseRecord(f.Line); err != nil {
			return nil, fmt.Errorf("the row of entry %d of %s: %w", f.Index, f.Origin, err)
		}
		if q.Wants(f.Record) {
			page.Receipts = append(page.Receipts, f)
		}
	}
	return page, rows.Err()
}

// selection is what stands behind WHERE.
type selection struct {
	conditions strings.Builder
	args       []any
}

// where adds a condition, in which each ? stands for one of the values.
func (s *selection) where(condition string, values ...any) {
	s.conditions.WriteString(" AND ")
	for i, part := range strings.Split(condition, "?") {
		if i > 0 {
			s.args = append(s.args, values[i-1])
			fmt.Fprintf(&s.conditions, "$%d", len(s.args))
		}
		s.conditions.WriteString(part)
	}
}

func parseCursor(cursor string) (at, entry int64, origin string, err error) {
	parts := strings.SplitN(cursor, ".", 3)
	if len(parts) != 3 {
		return 0, 0, "", ErrCursor
	}
	at, err1 := strconv.ParseInt(parts[0], 10, 64)
	entry, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err1 != nil || err2 != nil || parts[2] == "" || strings.Contains(parts[2], "\x00") {
		return 0, 0, "", ErrCursor
	}
	return at, entry, parts[2], nil
}
