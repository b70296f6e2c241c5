package store

import (
	"strings"
	"unicode/utf8"
)

// PostgreSQL keeps no U+0000 in a text, and no byte that is no UTF-8. Names of users may
// have both, and two names are never to become one. So these are written as a mark and what
// follows it, and so is the mark; every text that has none of them, which is about
// every one there is, stays as it is for who looks at the tables.
const (
	mark    = '\x01'
	nul     = '\x01' // behind a mark: U+0000; so texts keep their order
	itself  = '\x02' // behind a mark: the mark
	badByte = '\x03' // behind a mark: before the character whose number is a byte that is no UTF-8
)

// pgKept is a text as PostgreSQL can keep it.
func pgKept(text string) string {
	if !strings.ContainsAny(text, "\x00\x01") && utf8.ValidString(text) {
		return text
	}
	var kept strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			kept.WriteString(string([]rune{mark, badByte, rune(text[i])}))
		case r == 0:
			kept.WriteString(string([]rune{mark, nul}))
		case r == mark:
			kept.WriteString(string([]rune{mark, itself}))
		default:
			kept.WriteString(text[i : i+size])
		}
		i += size
	}
	return kept.String()
}

// pgTold is the text of which pgKept made this one.
func pgTold(kept string) string {
	if !strings.ContainsRune(kept, mark) {
		return kept
	}
	var text strings.Builder
	runes := []rune(kept)
	for i := 0; i < len(runes); i++ {
		switch {
		case runes[i] != mark || i+1 == len(runes):
			text.WriteRune(runes[i])
			continue
		case runes[i+1] == nul:
			text.WriteByte(0)
		case runes[i+1] == itself:
			text.WriteByte(mark)
		case runes[i+1] == badByte && i+2 < len(runes):
			text.WriteByte(byte(runes[i+2]))
			i++
		}
		i++
	}
	return text.String()
}
