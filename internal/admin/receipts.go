package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// ReceiptQuery says which receipts are wanted: a field that is zero wants all.
type ReceiptQuery struct {
	Tenant, Key, Service, Decision string
	Code                           string // or an ending, or "running"
	From, To                       time.Time
	Oldest                         bool   // the oldest first
	Cursor                         string // "" begins
	Limit                          int    // from 1 to 1000
}

// ReceiptPage is some of them, each as it is stored. Next is the Cursor for those
// that follow, or "". Of says whose they are where replicas share a database, which may be
// away: OfFleet or OfReplica.
type ReceiptPage struct {
	Receipts [][]byte
	Next, Of string
}

// The values of ReceiptPage.Of.
const (
	OfFleet   = "fleet"
	OfReplica = "replica"
)

// ErrNoFleet is what Operations.Receipts returns where a list of all replicas cannot go on.
var ErrNoFleet = errors.New("the database with the receipts of all replicas does not answer; without a cursor those of this replica are listed meanwhile")

// ErrTryLater is what Operations.Receipts returns while it would take long.
var ErrTryLater = errors.New("the receipts have no index yet; it is being made: try again in some seconds")

// WrongParameter is an error of a parameter that only Operations can judge.
type WrongParameter struct{ Name, What string }

func (w WrongParameter) Error() string { return w.Name + " " + w.What }

const (
	receiptsPage = 100
	receiptsMost = 1000
)

// listReceipts is GET /admin/v1/receipts.
func listReceipts(o Operations) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, wrong := receiptQuery(r.URL.RawQuery)
		var page ReceiptPage
		var err error
		if len(wrong) == 0 {
			page, err = o.Receipts(r.Context(), q)
		}
		var parameterErr WrongParameter
		if errors.As(err, &parameterErr) {
			wrong = []parameter{{parameterErr.Name, parameterErr.What}}
		}
		switch {
		case len(wrong) > 0:
			fail(w, problem{Status: http.StatusBadRequest, Code: "bad_request", Parameters: wrong,
				Detail: "say which receipts: any of tenant, key, service, decision, code, from and to, with order, limit and cursor"})
		case errors.Is(err, ErrTryLater), errors.Is(err, ErrNoFleet):
			w.Header().Set("Retry-After", "5")
			fail(w, problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: err.Error()})
		case err != nil:
			fail(w, problem{Status: http.StatusInternalServerError, Code: "internal", Detail: err.Error()})
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write(page.json()) // who asked may be gone
		}
	}
}

// json has the records byte for byte as they are stored, which an encoder would not.
func (p ReceiptPage) json() []byte {
	var b bytes.Buffer
	b.WriteString(`{"receipts":[`)
	for i, line := range p.Receipts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(line)
	}
	b.WriteString("\n]")
	if p.Next != "" {
		next, _ := json.Marshal(p.Next) // a text always has its JSON
		fmt.Fprintf(&b, `,"next":%s`, next)
	}
	if p.Of != "" {
		fmt.Fprintf(&b, `,"of":"%s"`, p.Of)
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// receiptQuery reads the query strictly, and lists what is wrong with it: a filter
// that was misspelt would show more than was asked for.
func receiptQuery(raw string) (q ReceiptQuery, wrong []parameter) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, []parameter{{"", "the query cannot be read"}}
	}
	q.Limit = receiptsPage
	text := func(into *string) func(string) string {
		return func(s string) string { *into = s; return "" }
	}
	moment := func(into *time.Time) func(string) string {
		return func(s string) string {
			for _, layout := range []string{time.RFC3339, time.DateOnly} {
				if t, err := time.Parse(layout, s); err == nil {
					*into = t
					return ""
				}
			}
			return "is neither a time (2026-01-02T15:04:05Z) nor a day (2026-01-02)"
		}
	}
	for _, p := range []struct {
		name string
		read func(string) (wrong string)
	}{
		{"tenant", text(&q.Tenant)}, {"key", text(&q.Key)}, {"service", text(&q.Service)}, {"code", text(&q.Code)},
		{"decision", func(s string) string {
			if q.Decision = s; s != "allowed" && s != "refused" {
				return "is neither allowed nor refused"
			}
			return ""
		}},
		{"from", moment(&q.From)}, {"to", moment(&q.To)},
		{"order", func(s string) string {
			if q.Oldest = s == "oldest"; s != "oldest" && s != "newest" {
				return "is neither newest nor oldest"
			}
			return ""
		}},
		{"limit", func(s string) string {
			var err error
			if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 1 || q.Limit > receiptsMost {
				return fmt.Sprintf("is no number from 1 to %d", receiptsMost)
			}
			return ""
		}},
		{"cursor", text(&q.Cursor)},
	} {
		given, there := values[p.name]
		delete(values, p.name)
		what := ""
		switch {
		case !there:
			continue
		case len(given) > 1:
			what = "is given more than once"
		case given[0] == "":
			what = "is empty"
		default:
			what = p.read(given[0])
		}
		if what != "" {
			wrong = append(wrong, parameter{p.name, what})
		}
	}
	if !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To) {
		wrong = append(wrong, parameter{"to", "is not after from: no receipt is in between"})
	}
	others := make([]string, 0, len(values))
	for name := range values {
		others = append(others, name)
	}
	slices.Sort(others)
	for _, name := range others {
		wrong = append(wrong, parameter{name, "is not a parameter of this"})
	}
	return q, wrong
}
