package identity

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// golden is spelled by hand from other tools' arithmetic (Python's int and
// zlib.crc32), so that the format cannot drift with the code.
var golden = []struct {
	name string
	seed func() [32]byte
	text string
}{
	{"zero", func() (s [32]byte) { return s }, "agw_" + strings.Repeat("0", 43) + "3wpEYm"},
	{"one", func() (s [32]byte) { s[31] = 1; return s }, "agw_" + strings.Repeat("0", 42) + "1" + "2wPSWI"},
	{"all bits", func() (s [32]byte) {
		for i := range s {
			s[i] = 0xff
		}
		return s
	}, "agw_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp12H0BFU"},
	{"counting", func() (s [32]byte) {
		for i := range s {
			s[i] = byte(i)
		}
		return s
	}, "agw_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf4abqtI"},
}

func TestKeyFormat(t *testing.T) {
	for _, c := range golden {
		if got := keyFrom(c.seed()); got != c.text {
			t.Errorf("%s: %s, want %s", c.name, got, c.text)
		}
		digest, ok := ParseKey(c.text)
		if !ok || digest != sha256.Sum256([]byte(c.text)) {
			t.Errorf("%s: ParseKey: %x, %v", c.name, digest, ok)
		}
	}
}

// TestKeySpellsItsNumber decodes by another way than keyFrom encodes: digit by
// digit, and with the checksum read back as a number.
func TestKeySpellsItsNumber(t *testing.T) {
	value := func(digits string) *big.Int {
		n := new(big.Int)
		for _, d := range digits {
			n.Mul(n, big.NewInt(62)).Add(n, big.NewInt(int64(strings.IndexRune(base62, d))))
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed"))
		text := keyFrom(seed)
		if value(text[4:47]).Cmp(new(big.Int).SetBytes(seed[:])) != 0 {
			t.Fatalf("%s is not the number %x", text, seed)
		}
		if got, want := value(text[47:]).Uint64(), uint64(crc32.ChecksumIEEE([]byte(text[:47]))); got != want {
			t.Fatalf("%s: checksum %d, want %d", text, got, want)
		}
	})
}

func TestNewKey(t *testing.T) {
	published := regexp.MustCompile(`^agw_[0-9A-Za-z]{49}$`)
	seen := make(map[string]bool)
	for range 1000 {
		text, digest := NewKey()
		s := text.Reveal()
		if !published.MatchString(s) || seen[s] {
			t.Fatalf("a bad or repeated key: %s", s)
		}
		seen[s] = true
		if got, ok := ParseKey(s); !ok || got != digest {
			t.Fatalf("%s does not parse to its digest", s)
		}
	}
}

// TestNewKeyIsUniform looks at the last digits, which taking bytes modulo 62
// would skew by a quarter towards the first eight characters. 62 cells of about
// 1,000; the bound on chi-square is passed by chance once in ten million runs.
func TestNewKeyIsUniform(t *testing.T) {
	var count [62]int
	const draws = 6200
	for range draws {
		text, _ := NewKey()
		for _, c := range text.Reveal()[37:47] {
			count[strings.IndexRune(base62, c)]++
		}
	}
	const want = draws * 10 / 62.0
	chi := 0.0
	for _, n := range count {
		chi += (float64(n) - want) * (float64(n) - want) / want
	}
	if chi > 137 {
		t.Errorf("digits are not uniform: chi-square %.0f over 61 degrees of freedom", chi)
	}
}

func TestWhatIsNotAKey(t *testing.T) {
	good := keyFrom([32]byte{7})
	for name, s := range map[string]string{
		"empty": "", "prefix": "agw_", "short": good[:52], "long": good + "0", "prefix case": "AGW_" + good[4:],
		"dash": "agw-" + good[4:], "space before": " " + good[:52], "space after": good[:52] + " ", "newline": good + "\n",
		"accent": good[:51] + "é", "nul": good[:20] + "\x00" + good[21:], "sql": "agw_' OR 1=1 --" + strings.Repeat("0", 38),
	} {
		if LooksLikeKey(s) {
			t.Errorf("%s looks like a key", name)
		}
		if _, ok := ParseKey(s); ok {
			t.Errorf("%s parses", name)
		}
	}
}

// TestHasKey: a key is found wherever it stands, and nothing that is less than one.
func TestHasKey(t *testing.T) {
	good := keyFrom([32]byte{7})
	for text, want := range map[string]bool{
		good: true, "user " + good: true, good + "0": true, "agw_" + good: true, good[:52] + "é" + good: true, "agw_agw_" + good[8:] + good[4:]: true,
		"": false, "agw_": false, good[:52]: false, good[:52] + "-" + good[:52]: false, strings.Repeat("agw_", 60): false, good[1:]: false,
	} {
		if HasKey(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// TestHasKeyInURL: a key is found with its characters escaped or not, and what is no
// escape changes nothing.
func TestHasKeyInURL(t *testing.T) {
	good := keyFrom([32]byte{7})
	every := ""
	for _, c := range []byte(good) {
		every += fmt.Sprintf("%%%02x", c)
	}
	for text, want := range map[string]bool{
		good: true, "?a=%20" + good + "%": true, every: true, strings.ToUpper(every[:12]) + good[4:]: true, "agw%5F" + good[4:]: true, "%zz%" + every + "%4": true,
		"": false, "%": false, every[:len(every)-1]: false, "agw%5G" + good[4:]: false, strings.ReplaceAll(every, "%", "%25"): false, "agw%2B" + good[4:]: false,
	} {
		if HasKeyInURL(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// TestChecksumCatchesMistakes tries every single wrong character and every swap
// of neighbours: a CRC-32 catches each change within 32 bits.
func TestChecksumCatchesMistakes(t *testing.T) {
	good := keyFrom(golden[3].seed())
	for i := 4; i < len(good); i++ {
		for _, c := range []byte(base62) {
			if wrong := good[:i] + string(c) + good[i+1:]; wrong != good {
				if _, ok := ParseKey(wrong); ok {
					t.Errorf("character %d as %c parses", i, c)
				}
				if !LooksLikeKey(wrong) {
					t.Errorf("character %d as %c does not look like a key", i, c)
				}
			}
		}
		if i+1 < len(good) && good[i] != good[i+1] {
			if _, ok := ParseKey(good[:i] + string(good[i+1]) + string(good[i]) + good[i+2:]); ok {
				t.Errorf("characters %d and %d swapped parses", i, i+1)
			}
		}
	}
}
