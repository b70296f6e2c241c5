// Package redact keeps a secret out of what somebody else says.
//
// A service that is given a credential may repeat it: an error that quotes the
// key, an echo of the request, a redirect with the query that it came with. A
// Redactor knows one secret and puts an asterisk in the place of each byte that
// shows it, so that lengths, and with them framing, stay what they were.
//
// # What is found
//
// The secret as it is; percent-encoded in the ways of queries, paths and
// JavaScript, in either case of the digits; as the inside of a JSON or JavaScript
// string or of HTML text; so with all signs escaped, or all letters and digits too
// (up to 4 KiB, and not in HTML's decimal); in hex of either case; and in base64, of
// either alphabet, whatever stands before and behind it.
//
// Whole, and in pieces: of 16 bytes or more, and of 8 or more with a letter and
// a digit in them. A shorter piece, or one like a word ("github_pat_"), is not
// taken for the secret: answers are full of words, and a byte that does not show
// the secret comes as it was.
//
// # What is not
//
// A secret of fewer than 8 bytes, or a line of that length in one of several
// lines: the answers would be full of it. And what was compressed, encrypted,
// turned around or spelled in any other way: this is for services that repeat
// what they were told, not for one that means to betray it.
package redact

import (
	"fmt"
	"log/slog"
	"sort"
	"strings"
)

const (
	// Shortest is the length below which a secret cannot be redacted.
	Shortest = 8
	// telling is from what length on any piece is taken for the secret.
	telling = 16
	// gram is how many bytes are looked up at once, and
	// stride how far apart: each run of Shortest bytes has one of these within.
	gram   = 4
	stride = Shortest - gram + 1
)

// perHead is how many hashes share an entry: seen has turned most away before.
const perHead = 4

// mark stands in the place of a byte that shows the secret. It is valid in a JSON
// string, a header and a URL.
const mark = '*'

// Redactor redacts one secret. The zero value redacts nothing. It prints as
// [redacted]. Safe for concurrent use.
type Redactor struct {
	// Two pointers, so that a printer that calls no method, and follows one,
	// shows an address.
	t **tables
}

// tables are a secret in all its forms, and where to look for them.
type tables struct {
	forms []form
	all   string // the forms, one behind the other
	ends  []int  // of each form in all
	reach int    // the most bytes of text that it may take to see that a piece shows the secret

	first [256]bool // bytes that some form has, so that a text that ends otherwise ends no piece
	shift uint      // turns a hash into an index of seen, heads
	seen  []uint64  // a bit for each hash of a gram
	heads []int32   // by hash/perHead, 1 + where in all one begins; 0: there is none
	next  []int32   // by where one begins, the same of another with this hash
}

// New returns what redacts secret, and pair as a whole and never a piece of it:
// a name and a secret that go together, of which the name is none. Either may be
// "". Where there is nothing that can be redacted it returns the zero value.
func New(secret, pair string) Redactor {
	r := &tables{}
	for _, line := range lines(secret) {
		r.forms = append(r.forms, forms(line, false)...)
	}
	for _, line := range lines(pair) {
		r.forms = append(r.forms, forms(line, true)...)
	}
	if len(r.forms) == 0 {
		return Redactor{}
	}
	r.index()
	return Redactor{&r}
}

// Empty reports whether there is nothing to redact.
func (r Redactor) Empty() bool { return r.t == nil }

// lines are the parts of a secret that control bytes end. No form has one of
// these, so a line of text that is at its end begins no piece, nor does an event.
func lines(secret string) (long []string) {
	for _, line := range strings.FieldsFunc(secret, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		if len(line) >= Shortest && !strings.HasPrefix(line, "-----") { // of a PEM block, which is none
			long = append(long, line)
		}
	}
	return long
}

// index makes the tables.
func (r *tables) index() {
	var all strings.Builder
	for _, f := range r.forms {
		all.WriteString(f.text)
		r.ends = append(r.ends, all.Len())
		r.reach = max(r.reach, f.reach())
	}
	r.all = all.String()
	grams := 0
	for i := range r.forms {
		grams += len(r.forms[i].text) / max(1, r.forms[i].unit)
	}
	bits := uint(8)
	for 1<<bits < 16*grams {
		bits++
	}
	r.shift = 32 - bits
	r.seen, r.heads, r.next = make([]uint64, 1<<bits/64), make([]int32, 1<<bits/perHead), make([]int32, len(r.all))
	from := 0
	for i, end := range r.ends {
		for at := from; at+gram <= end; at++ {
			if !r.forms[i].indexed(at - from) {
				continue
			}
			h := r.hash(gramAt(r.all, at))
			r.seen[h/64] |= 1 << (h % 64)
			r.next[at], r.heads[h/perHead] = r.heads[h/perHead], int32(at+1) //nolint:gosec // secrets are far below 2 GiB
		}
		from = end
	}
	for i := range len(r.all) {
		r.first[r.all[i]] = true
	}
}

// formAt is the form that has the byte at, and where in all it begins.
func (r *tables) formAt(at int) (f *form, from int) {
	i := sort.SearchInts(r.ends, at+1)
	f = &r.forms[i]
	return f, r.ends[i] - len(f.text)
}

func (r *tables) hash(g uint32) uint32 { return g * 0x9e3779b1 >> r.shift }

func gramAt[T string | []byte](text T, i int) uint32 {
	_ = text[i+3]
	return uint32(text[i]) | uint32(text[i+1])<<8 | uint32(text[i+2])<<16 | uint32(text[i+3])<<24
}

const printed = "[redacted]"

// Format prints [redacted] for every verb.
func (Redactor) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(printed)) }

// MarshalJSON returns "[redacted]".
func (Redactor) MarshalJSON() ([]byte, error) { return []byte(`"` + printed + `"`), nil }

// LogValue returns [redacted].
func (Redactor) LogValue() slog.Value { return slog.StringValue(printed) }
