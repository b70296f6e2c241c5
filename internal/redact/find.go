package redact

import (
	"net/http"
	"strings"
)

// span is where a text shows the secret.
type span struct{ from, to int }

// find appends where text shows the secret, in no order.
//
// It looks at each fifth place alone: if four bytes stand there that some form
// has, the run around them that text and form have in common is judged. So most
// of a text is not looked at, and what shows nothing costs a lookup for five bytes.
func find[T string | []byte](r *tables, text T, spans []span) []span {
	var known runs
	for p := 0; p+gram <= len(text); p += stride {
		g := gramAt(text, p)
		h := r.hash(g)
		if r.seen[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		for at := int(r.heads[h/perHead]) - 1; at >= 0; at = int(r.next[at]) - 1 {
			if gramAt(r.all, at) != g || known.have(at-p, p) {
				continue
			}
			f, from := r.formAt(at)
			a, b := at-from, at-from+gram // in the form
			i, j := p, p+gram             // in the text
			for a > 0 && i > 0 && f.text[a-1] == text[i-1] {
				a, i = a-1, i-1
			}
			for b < len(f.text) && j < len(text) && f.text[b] == text[j] {
				b, j = b+1, j+1
			}
			known.add(at-p, j)
			if f.shows(a, b) {
				spans = append(spans, span{i, j})
			}
		}
	}
	return spans
}

// runs are those of a text that were judged and reach farthest, so that none is
// followed to its ends again at each place of it: a long secret that is repeated
// would take the square of its length. There are several at once where forms have
// parts in common.
type runs [8]struct {
	lead  int // of the form before the text
	until int // in the text
}

func (known *runs) have(lead, at int) bool {
	for i := range known {
		if known[i].lead == lead && at < known[i].until {
			return true
		}
	}
	return false
}

// add takes the place of the run that ends first.
func (known *runs) add(lead, until int) {
	first := 0
	for i := range known {
		if known[i].until < known[first].until {
			first = i
		}
	}
	known[first].lead, known[first].until = lead, until
}

// open returns how many bytes at the end of text may turn out to show the secret,
// by what comes next, and do not yet.
func (r *tables) open(text []byte) (n int) {
	if len(text) == 0 || !r.first[text[len(text)-1]] {
		return 0
	}
	last := text[len(text)-1]
	from, shown := 0, 0
	for k := range r.forms {
		f, end := &r.forms[k], r.ends[k]
		for to := from; ; to++ {
			found := strings.IndexByte(r.all[to:end], last)
			if found < 0 {
				break
			}
			to += found
			b := to + 1 - from
			a, i := b-1, len(text)-1
			for a > 0 && i > 0 && f.text[a-1] == text[i-1] {
				a, i = a-1, i-1
			}
			switch {
			case f.shows(a, b):
				shown = max(shown, b-a)
			case b < len(f.text): // else nothing can follow
				n = max(n, b-a)
			}
		}
		from = end
	}
	if n <= shown { // it is marked already
		return 0
	}
	return n
}

func mask(text []byte, spans []span) {
	for _, s := range spans {
		for i := s.from; i < s.to; i++ {
			text[i] = mark
		}
	}
}

// String returns s with what shows the secret marked.
func (r Redactor) String(s string) string {
	if r.t == nil {
		return s
	}
	spans := find(*r.t, s, nil)
	if len(spans) == 0 {
		return s
	}
	b := []byte(s)
	mask(b, spans)
	return string(b)
}

// Header marks what shows the secret in the values of h, and reports whether
// there was any.
func (r Redactor) Header(h http.Header) (found bool) {
	if r.t == nil {
		return false
	}
	for _, values := range h {
		for i, v := range values {
			if s := r.String(v); s != v {
				values[i], found = s, true
			}
		}
	}
	return found
}
