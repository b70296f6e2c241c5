package store

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzTexts: every text comes back as it was, and is one that PostgreSQL takes meanwhile.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{"", "user-42", "ü", "a\x00b", "\x00", "\x01", "\x01\x01", "\x01\x02", "\x01\x03\xc3", "\xff", "a\xc3", "\xc3\xbc\x80", "�"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kept := pgKept(text)
		if !utf8.ValidString(kept) || strings.Contains(kept, "\x00") {
			t.Errorf("%q is kept as %q, which PostgreSQL refuses", text, kept)
		}
		if told := pgTold(kept); told != text {
			t.Errorf("%q is kept as %q and told as %q", text, kept, told)
		}
	})
}

func TestTextsKeepTheirOrder(t *testing.T) {
	texts := []string{"", "\x00", "\x00a", "\x01", "\x01b", "\x02", "a", "a\x00", "a\x00b", "a\x01", "aa"}
	var kept []string
	for _, text := range texts {
		kept = append(kept, pgKept(text))
	}
	if !slices.IsSorted(texts) || !slices.IsSorted(kept) {
		t.Errorf("%q", kept)
	}
	if plain := "ü'\"\\%_"; pgKept(plain) != plain {
		t.Errorf("%q is kept as %q", plain, pgKept(plain))
	}
}
