package receiptindex

import (
	"cmp"
	"strings"

	"agentgw/internal/receipts"
)

// row is an entry of a log as the database has it.
type row struct {
	entry                                                        uint64
	at                                                           int64
	id, tenant, caller, service, decision, code, ending, request string
	begins, listed                                               bool
	line                                                         string
}

// rowsOf are those of the entries that are about calls. What begins with one of them and
// ends with another is not listed; ended are the receipts that end here and may have
// begun before.
func rowsOf(entries []receipts.Stored) (rows []row, ended []string) {
	open := map[string]int{} // by id: where in rows it begins
	for _, e := range entries {
		r := e.Record
		switch r.Kind {
		case receipts.KindIntent, receipts.KindOutcome, receipts.KindRefusal, receipts.KindSummary, receipts.KindGap:
		default:
			continue
		}
		if r.Begins() {
			open[r.ID] = len(rows)
		} else if i, here := open[r.ID]; here {
			rows[i].listed = false
		} else if r.Kind == receipts.KindOutcome || r.Kind == receipts.KindSummary {
			ended = append(ended, kept(r.ID))
		}
		rows = append(rows, row{
			entry: e.Index, at: r.Time.UnixMicro(), id: kept(r.ID), tenant: kept(r.Tenant), caller: kept(cmp.Or(r.Key, r.Caller)), service: kept(r.Service),
			decision: r.Decision, code: kept(r.Code), ending: string(r.Ending), request: kept(r.RequestID), begins: r.Begins(), listed: true, line: string(e.Line),
		})
	}
	return rows, ended
}

// kept is a text as PostgreSQL can keep it, which has no U+0000 in one. Two texts may become
// one: what is found by it is looked at again.
func kept(text string) string { return strings.ReplaceAll(text, "\x00", `\u0000`) }
