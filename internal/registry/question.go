package registry

import (
	"regexp"
	"strings"
)

// spot is a word in a text.
type spot struct {
	line, column int // from 1
	at           int // its first byte
	word         string
}

// bareOptionals finds the words such as string? that stand bare within { } or
// [ ]. There a question mark begins a key, for the parser at least, and what it
// says of that helps nobody.
//
// It reads just enough of YAML to pass over quoted text and comments, and may be
// wrong about what looks like either within a block scalar.
func bareOptionals(data []byte) (found []spot) {
	depth, begins := 0, 0
	for i, text := range strings.Split(string(data), "\n") {
		for at := 0; at < len(text); at++ {
			switch c := text[at]; {
			case c == '#' && (at == 0 || text[at-1] == ' ' || text[at-1] == '\t'):
				at = len(text)
			case (c == '"' || c == '\'') && opens(text[:at]):
				at += closing(text[at+1:], c)
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				depth--
			case c == '?' && depth > 0:
				if m := wordBefore.FindString(text[:at]); m != "" {
					from := at - len(m)
					found = append(found, spot{line: i + 1, column: from + 1, at: begins + from, word: m + "?"})
				}
			}
		}
		begins += len(text) + 1
	}
	return found
}

var wordBefore = regexp.MustCompile(`[A-Za-z]+$`)

// withQuotes returns data with these words in quotes.
func withQuotes(data []byte, words []spot) []byte {
	var b []byte
	done := 0
	for _, w := range words {
		b = append(b, data[done:w.at]...)
		b = append(b, `"`+w.word+`"`...)
		done = w.at + len(w.word)
	}
	return append(b, data[done:]...)
}

// opens reports whether a quote behind before opens a text, and is not an
// apostrophe within one.
func opens(before string) bool {
	before = strings.TrimRight(before, " \t")
	return before == "" || strings.ContainsAny(before[len(before)-1:], "{[,:-")
}

// closing returns how many bytes there are up to the quote that ends a text,
// that one included; the whole rest where there is none in this line.
func closing(rest string, quote byte) int {
	for i := 0; i < len(rest); i++ {
		switch {
		case rest[i] == '\\' && quote == '"':
			i++
		case rest[i] == quote:
			return i + 1
		}
	}
	return len(rest)
}
