package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// form is one way to write a secret.
type form struct {
	text   string
	at     []int32 // by byte of text, the byte of the secret that it shows, or the first of those,
	to     []int32 // and behind the last of those
	secret string
	whole  bool // no piece of it counts
	unit   int  // of a form in which all is escaped, how long each escape is; else 0
}

// indexed reports whether the gram at a byte of the form is looked up. Where all is
// escaped most grams say little of the secret, and stand in whatever else is escaped:
// one in each escape will do, the one that ends with it, since the places that are
// looked at are at each phase of the escapes before Shortest of them have gone by.
func (f *form) indexed(at int) bool {
	return f.unit == 0 || (at+gram)%f.unit == 0
}

// shows reports whether text[from:to] is taken for the secret.
func (f *form) shows(from, to int) bool {
	if from == 0 && to == len(f.text) {
		return true
	}
	if f.whole {
		return false
	}
	piece := f.secret[f.at[from]:f.to[to-1]]
	return len(piece) >= telling || len(piece) >= Shortest && mixed(piece)
}

// reach is how many bytes of text it may take until a piece shows the secret.
func (f *form) reach() (most int) {
	if f.whole {
		return len(f.text)
	}
	from := 0
	for to := range f.at {
		for f.to[to]-f.at[from] >= telling {
			from++
		}
		most = max(most, to+1-from)
	}
	return most + 1
}

// mixed reports whether a piece has a letter and a digit in it, as what was drawn
// at random mostly does, and words do not.
func mixed(piece string) bool {
	return strings.ContainsAny(piece, "0123456789") &&
		strings.ContainsFunc(piece, func(c rune) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' })
}

// forms are the ways to write a secret, each once.
func forms(secret string, whole bool) (all []form) {
	unit := 0
	add := func(text string, at, to []int32) {
		for _, f := range all {
			if f.text == text {
				return
			}
		}
		if len(text) >= gram {
			all = append(all, form{text: text, at: at, to: to, secret: secret, whole: whole, unit: unit})
		}
	}
	for _, escape := range escapes {
		add(spelled(secret, func(c string) string {
			if len(c) == 1 && alphanumeric(c[0]) {
				return c
			}
			return escape(c)
		}))
	}
	for _, digits := range []string{small, large} {
		add(spelled(secret, each("", digits, "")))
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for before := range 3 {
			add(inBase64(e, secret, before))
		}
	}
	if len(secret) <= escapable {
		for _, e := range everything {
			unit = e.unit
			add(spelled(secret, e.escape))
		}
	}
	return all
}

// escapable is the length to which secrets are looked for with all their letters escaped.
const escapable = 4 << 10

const (
	small = "0123456789abcdef"
	large = "0123456789ABCDEF"
)

// everything are the ways to escape each byte, letters and digits, too.
var everything = []struct {
	unit   int
	escape func(c string) string
}{
	{3, each("%", large, "")}, {3, each("%", small, "")}, {4, each(`\x`, small, "")}, {4, each(`\x`, large, "")},
	{6, units(small)}, {6, units(large)},
	{6, each("&#x", small, ";")}, {6, each("&#x", large, ";")}, {6, each("&#X", large, ";")},
}

// each writes the bytes of a character in hex, with that around each.
func each(before, digits, behind string) func(c string) string {
	return func(c string) string {
		b := make([]byte, 0, 32)
		for i := range len(c) {
			b = append(b, before...)
			b = append(b, digits[c[i]>>4], digits[c[i]&15])
			b = append(b, behind...)
		}
		return string(b)
	}
}

// units writes a character as JSON may, in its units of UTF-16.
func units(digits string) func(c string) string {
	return func(c string) string {
		b := make([]byte, 0, 32)
		for _, u := range utf16.Encode([]rune(c)) {
			b = append(b, '\\', 'u', digits[u>>12], digits[u>>8&15], digits[u>>4&15], digits[u&15])
		}
		return string(b)
	}
}

// decimal is HTML's other way.
func decimal(c string) string {
	r, _ := utf8.DecodeRuneInString(c)
	return "&#" + strconv.Itoa(int(r)) + ";"
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// escapes write one character, which may be a byte that is none, each in a way of
// its own. Letters and digits of ASCII they are not asked for.
var escapes = []func(c string) string{
	func(c string) string { return c },
	url.QueryEscape, url.PathEscape, component,
	lower(url.QueryEscape), lower(url.PathEscape), lower(component),
	inJSON(true), inJSON(false), slashed, inASCII, html.EscapeString,
	func(c string) string { return `\` + c },
	each(`\x`, small, ""), each(`\x`, large, ""), units(small), units(large), each("&#x", small, ";"), each("&#x", large, ";"), decimal,
}

// component is what JavaScript's encodeURIComponent makes of c.
func component(c string) string {
	if len(c) == 1 && strings.Contains("!'()*", c) {
		return c
	}
	return strings.ReplaceAll(url.QueryEscape(c), "+", "%20")
}

// lower has percent-encoding's digits in lower case.
func lower(escape func(string) string) func(string) string {
	return func(c string) string {
		if e := escape(c); e != c {
			return strings.ToLower(e)
		}
		return c
	}
}

// inJSON is the inside of a JSON string, with HTML's characters escaped or not.
func inJSON(html bool) func(string) string {
	return func(c string) string {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		_ = e.Encode(c) // a string can be
		return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
	}
}

// slashed is JSON as PHP writes it.
func slashed(c string) string {
	if c == "/" {
		return `\/`
	}
	return inJSON(false)(c)
}

// inASCII is JSON in which nothing but ASCII stands.
func inASCII(c string) string {
	r, n := utf8.DecodeRuneInString(c)
	switch {
	case r < utf8.RuneSelf || r == utf8.RuneError && n == 1:
		return inJSON(false)(c)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// spelled is a secret with each character as spell writes it.
func spelled(secret string, spell func(string) string) (text string, at, to []int32) {
	var b strings.Builder
	at, to = make([]int32, 0, 2*len(secret)), make([]int32, 0, 2*len(secret))
	for i, n := 0, 0; i < len(secret); i += n {
		_, n = utf8.DecodeRuneInString(secret[i:])
		written := spell(secret[i : i+n])
		b.WriteString(written)
		for j := range len(written) {
			of := int32(i + j*n/len(written)) //nolint:gosec // secrets are far below 2 GiB
			at, to = append(at, of), append(to, of+1)
		}
	}
	return b.String(), at, to
}

// inBase64 is what base64 makes of a secret behind so many other bytes: those
// characters that depend on nothing else.
func inBase64(e *base64.Encoding, secret string, before int) (text string, at, to []int32) {
	encoded := e.EncodeToString([]byte(strings.Repeat("x", before) + secret))
	first, end := (8*before+5)/6, 8*(before+len(secret))/6
	for j := first; j < end; j++ {
		at = append(at, int32(6*j/8-before))       //nolint:gosec // secrets are far below 2 GiB
		to = append(to, int32((6*j+5)/8-before+1)) //nolint:gosec // as above
	}
	return encoded[first:end], at, to
}
