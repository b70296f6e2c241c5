package receipts

import (
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	maxRecord    = 8 << 10 // of a record line that is written, tag included
	maxInteger   = 1<<53 - 1
	cutText      = 160 // bytes that a text may take, as spelled, in a record that was too large
	cutChain     = 8   // links of the chain that stay in a record that was too large
	timeLayout   = "2006-01-02T15:04:05.000000Z"
	tagMember    = `,"tag":"`
	tagLine      = len(tagMember) + tagText + len(`"}`)
	recordPrefix = `{"v":1,"kind":"`
)

// appendRecord appends the record line of r up to and not including its tag:
// an object that is still open. A record over the limit is written again with
// its texts cut short and so marked: refusing it would leave a call without a
// receipt, and a caller could choose that by sending a long name.
func appendRecord(dst []byte, r *Record) []byte {
	start := len(dst)
	dst = appendFields(dst, r, 0)
	if len(dst)-start+tagLine <= maxRecord {
		return dst
	}
	short := *r
	short.Cut = true
	if n := len(short.Chain); n > cutChain {
		short.Chain = short.Chain[n-cutChain:]
	}
	return appendFields(dst[:start], &short, cutText)
}

// appendFields writes the members in their fixed order. It is the only place
// where a record becomes text, so there is nothing to canonicalise afterwards.
func appendFields(dst []byte, r *Record, cut int) []byte {
	e := encoder{b: dst, cut: cut}
	e.b = append(e.b, recordPrefix...)
	e.b = append(e.b, r.Kind...)
	e.b = append(e.b, '"')
	e.text(`,"id":`, r.ID)
	e.time(`,"t":"`, r.Time)
	e.integer(`,"seq":`, int64(r.Seq), false)
	e.text(`,"tenant":`, r.Tenant)
	e.text(`,"caller":`, r.Caller)
	e.text(`,"key":`, r.Key)
	e.text(`,"principal":`, r.Principal)
	if len(r.Chain) > 0 {
		e.b = append(e.b, `,"chain":[`...)
		for i, link := range r.Chain {
			if i > 0 {
				e.b = append(e.b, ',')
			}
			e.b = appendText(e.b, link, e.cut)
		}
		e.b = append(e.b, ']')
	}
	e.text(`,"service":`, r.Service)
	e.text(`,"action":`, r.Action)
	e.text(`,"method":`, r.Method)
	if p := r.Params; p != nil {
		e.b = append(e.b, `,"params":{"alg":`...)
		e.b = appendText(e.b, p.Alg, e.cut)
		e.b = append(e.b, `,"hash":`...)
		e.b = appendText(e.b, p.Hash, e.cut)
		e.text(`,"key":`, p.Key)
		e.b = append(e.b, '}')
	}
	e.text(`,"decision":`, r.Decision)
	e.text(`,"code":`, r.Code)
	e.text(`,"limit":`, r.Limit)
	e.integer(`,"status":`, int64(r.Status), false)
	// What was measured stands even where it is zero: an answer of no bytes
	// is not the same as an answer of which nobody knows.
	measured := r.Kind == KindOutcome && r.Ending != OutcomeUnknown
	e.integer(`,"in":`, r.In, measured)
	e.integer(`,"out":`, r.Out, measured)
	e.integer(`,"messages":`, r.Messages, false)
	e.text(`,"ending":`, string(r.Ending))
	e.integer(`,"queue_us":`, r.QueueMicros, measured)
	e.integer(`,"upstream_us":`, r.UpstreamMicros, measured)
	e.integer(`,"total_us":`, r.TotalMicros, measured)
	e.text(`,"request_id":`, r.RequestID)
	e.text(`,"client_addr":`, r.ClientAddr)
	e.text(`,"replica":`, r.Replica)
	if c := r.Recovery; c != nil {
		e.b = append(e.b, `,"recovery":{"file":`...)
		e.b = appendText(e.b, c.File, e.cut)
		e.integer(`,"offset":`, c.Offset, true)
		e.integer(`,"bytes":`, c.Bytes, true)
		e.b = append(e.b, `,"sha256":`...)
		e.b = appendText(e.b, c.SHA256, e.cut)
		e.integer(`,"kept":`, c.Kept, true)
		e.b = append(e.b, '}')
	}
	e.text(`,"vkey":`, r.VKey)
	if h := r.Heads; h != nil {
		e.integer(`,"heads":{"count":`, int64(h.Count), true)
		e.b = append(e.b, `,"root":`...)
		e.b = appendText(e.b, h.Root, e.cut)
		e.b = append(e.b, '}')
	}
	if c := r.Pruned; c != nil {
		e.integer(`,"pruned":{"before":`, int64(c.Before), true)
		e.b = append(e.b, `,"sha256":`...)
		e.b = appendText(e.b, c.SHA256, e.cut)
		e.b = append(e.b, '}')
	}
	if r.Kind.counts() {
		e.time(`,"from":"`, r.From)
		e.time(`,"to":"`, r.To)
		e.integer(`,"count":`, int64(min(r.Count, maxInteger)), true)
	}
	if r.Kind.counts() || r.Kind == KindRefusal {
		e.text(`,"reason":`, r.Reason)
	}
	if r.Interval {
		e.b = append(e.b, `,"interval":true`...)
	}
	if r.Cut {
		e.b = append(e.b, `,"cut":true`...)
	}
	return e.b
}

// encoder appends members; names are given with their comma and colon.
type encoder struct {
	b   []byte
	cut int // bytes that a text may take; 0 is no bound
}

func (e *encoder) text(name, value string) {
	if value != "" {
		e.b = appendText(append(e.b, name...), value, e.cut)
	}
}

// time is given its name with the opening quote.
func (e *encoder) time(name string, t time.Time) {
	e.b = append(appendTime(append(e.b, name...), t), '"')
}

// integer writes what fits into a JSON number that every reader holds exactly;
// a count below zero or above 2^53-1 is a fault of the caller and is clamped,
// since a receipt with a wrong count is better than a call without a receipt.
func (e *encoder) integer(name string, n int64, always bool) {
	if n <= 0 && !always {
		return
	}
	e.b = strconv.AppendInt(append(e.b, name...), min(max(n, 0), maxInteger), 10)
}

// appendTime writes t with six digits of a second. time.AppendFormat would do
// the same from timeLayout and take several times as long, most of a record's time.
func appendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return append(dst, "1970-01-01T00:00:00.000000Z"...) // a year of five digits would break the fixed width
	}
	hour, minute, second := t.Clock()
	dst = appendDigits(dst, year, 4)
	dst = appendDigits(append(dst, '-'), int(month), 2)
	dst = appendDigits(append(dst, '-'), day, 2)
	dst = appendDigits(append(dst, 'T'), hour, 2)
	dst = appendDigits(append(dst, ':'), minute, 2)
	dst = appendDigits(append(dst, ':'), second, 2)
	dst = appendDigits(append(dst, '.'), t.Nanosecond()/1000, 6)
	return append(dst, 'Z')
}

func appendDigits(dst []byte, n, width int) []byte {
	at := len(dst)
	dst = append(dst, "000000"[:width]...)
	for i := at + width - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

const lowerHex = "0123456789abcdef"

// appendText writes s as a JSON string without any raw control or direction
// mark, in at most cut bytes between the quotes where cut is above 0.
func appendText(dst []byte, s string, cut int) []byte {
	dst = append(dst, '"')
	start := len(dst)
	if isPlain(s) && (cut == 0 || len(s) <= cut) { // nearly every text
		return append(append(dst, s...), '"')
	}
	for i := 0; i < len(s); {
		before := len(dst)
		c := s[i]
		size := 1
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20 && c < 0x7f:
			dst = append(dst, c)
		case c < utf8.RuneSelf:
			dst = append(dst, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			if mustEscape(r) {
				dst = append(dst, '\\', 'u', lowerHex[r>>12], lowerHex[r>>8&15], lowerHex[r>>4&15], lowerHex[r&15])
			} else {
				dst = utf8.AppendRune(dst, r) // U+FFFD for a byte that is not UTF-8
			}
		}
		if cut > 0 && len(dst)-start > cut {
			dst = dst[:before]
			break
		}
		i += size
	}
	return append(dst, '"')
}

// isPlain reports whether s is spelled as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// mustEscape reports whether a code point beyond ASCII is escaped: C1 controls,
// line separators, and what is invisible or turns the reading direction.
func mustEscape(r rune) bool {
	return r <= 0x9f || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e ||
		r >= 0x2060 && r <= 0x206f || r == 0xfeff
}
