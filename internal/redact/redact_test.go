package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"agentgw/internal/redact"
)

// spellings are the ways in which a service may repeat a secret, by encoders that
// the package has no part in where there are any.
func spellings(secret string) map[string]string {
	quoted, _ := json.Marshal(secret)
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	_ = e.Encode(secret)
	all := map[string]string{
		"plain": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"query with %20":  strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"),
		"query, lower":    lowerDigits(url.QueryEscape(secret)),
		"JSON for HTML":   string(quoted[1 : len(quoted)-1]),
		"JSON":            strings.Trim(strings.TrimSpace(plain.String()), `"`),
		"JSON with slash": strings.ReplaceAll(strings.Trim(strings.TrimSpace(plain.String()), `"`), "/", `\/`),
		"HTML":            html.EscapeString(secret),
		"hex":             hex.EncodeToString([]byte(secret)), "HEX": fmt.Sprintf("%X", secret),
	}
	for name, format := range map[string]string{"%": "%%%02X", "%, lower": "%%%02x", "x": `\x%02x`, "X": `\x%02X`, "HTML": "&#x%x;", "HTML, upper": "&#x%X;", "HTML, X": "&#X%X;"} {
		if utf8.ValidString(secret) && !strings.ContainsFunc(secret, func(c rune) bool { return c < 16 }) {
			for i := range len(secret) {
				all["every byte in "+name] += fmt.Sprintf(format, secret[i])
			}
		}
	}
	for name, format := range map[string]string{"u": `\u%04x`, "U": `\u%04X`} {
		for _, unit := range utf16.Encode([]rune(secret)) {
			if utf8.ValidString(secret) {
				all["every letter in "+name] += fmt.Sprintf(format, unit)
			}
		}
	}
	for name, format := range map[string]string{"x": `\x%02x`, "u": `\u%04X`, "HTML": "&#%d;", "HTML, hex": "&#x%x;", "backslash": `\%c`} {
		if !strings.ContainsFunc(secret, func(c rune) bool { return c >= utf8.RuneSelf || c < 16 }) {
			all["every sign in "+name] = sign.ReplaceAllStringFunc(secret, func(c string) string { return fmt.Sprintf(format, c[0]) })
		}
	}
	for before := range 3 {
		for name, e := range map[string]*base64.Encoding{"std": base64.StdEncoding, "URL": base64.URLEncoding, "raw": base64.RawURLEncoding} {
			all[fmt.Sprintf("base64 %s behind %d", name, before)] = e.EncodeToString([]byte("ü~?"[:before] + secret + "!"))
		}
	}
	return all
}

var sign = regexp.MustCompile(`[^0-9A-Za-z]`)

func lowerDigits(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i:], strings.ToLower(s[i:i+3]))
		}
	}
	return string(b)
}

var secrets = []string{
	"sk-proj-Zx81kQ0pLmVq45fT6lKg", "Zx81kQ0p", "correct horse battery staple", `a"b\c/d<e>&f+g=h?i#j%k~l!m'n(o)p*q 7`,
	"ключ-от-всего-7", "\xff\xfe\x00binary?7"[:2] + "binary-7-\xfd\xfc", "0123456789012345", "AKIA/ABC+defGHI=jkl123", strings.Repeat("Ab1", 20), "snow\u2028man\U0001f600key77",
}

// TestEverySpellingIsMarked: in whatever spelling a secret is repeated, no piece of
// eight of its bytes stands in what comes out, and everything beside it does.
func TestEverySpellingIsMarked(t *testing.T) {
	for _, secret := range secrets {
		r := redact.New(secret, "")
		for name, text := range spellings(secret) {
			for _, around := range [][2]string{{"", ""}, {`{"error":"invalid key `, ` given"}`}, {"key=", "&x=1"}, {"Zx81k", "Zx81k"}} {
				if strings.HasPrefix(name, "base64") && around[0] == "Zx81k" {
					continue // the neighbours are base64, too
				}
				if strings.Contains(name, "HTML") && around[1] == "&x=1" {
					continue // which may begin the next escape
				}
				in := around[0] + text + around[1]
				out := r.String(in)
				if len(out) != len(in) || !strings.HasPrefix(out, around[0]) || !strings.HasSuffix(out, around[1]) {
					t.Errorf("%q, %s: %q became %q", secret, name, in, out)
				}
				middle := out[len(around[0]) : len(out)-len(around[1])]
				kept := 7 // what base64 has of the neighbours, and at its end
				if !strings.HasPrefix(name, "base64") {
					kept = 0
				}
				if got := len(middle) - strings.Count(middle, "*"); got > kept+strings.Count(text, "*") {
					t.Errorf("%q, %s: %q became %q, which shows %d bytes", secret, name, in, out, got)
				}
			}
		}
	}
}

// TestPiecesAreMarked: a service that masks a secret itself shows pieces of it.
func TestPiecesAreMarked(t *testing.T) {
	const secret = "sk-proj-Zx81kQ0pLmVq45fT6lKg"
	r := redact.New(secret, "")
	for in, want := range map[string]string{
		"invalid key: sk-proj-Zx81****6lKg": "invalid key: ****************6lKg", // which shows four
		"Zx81kQ0pLm...":                     "**********...",
		"ends in 45fT6lKg.":                 "ends in ********.",
		"Zx81kQ0":                           "Zx81kQ0",              // seven
		"use sk-proj-... keys":              "use sk-proj-... keys", // a word
		"sk-proj-Zx":                        "sk-proj-Zx",           // and no digit
		"azogWng4MWtRMHA=":                  "azog**********A=",     // in base64
		"a byte that does not show it comes as it was, Zx81kQ": "a byte that does not show it comes as it was, Zx81kQ",
	} {
		got := r.String(in)
		if got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestWordsPass: a secret that has words in it does not take them out of answers.
func TestWordsPass(t *testing.T) {
	r := redact.New("github_pat_11ABCDEFG0aZx81kQ0pLm", "jenkins-robot:hunter2")
	for _, text := range []string{
		`{"github_projects":"https://github.com/github_pat_"}`, "jenkins-robot is not allowed", "aHVudGVyMg==", "hunter2",
		base64.StdEncoding.EncodeToString([]byte("see github_pat_ for github_projects")),
	} {
		if got := r.String(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	// The two of a basic credential are one where they stand together.
	for _, text := range []string{"jenkins-robot:hunter2", base64.StdEncoding.EncodeToString([]byte("jenkins-robot:hunter2"))} {
		if got := r.String("Basic " + text + " "); strings.Count(got, "*") < len(text)-4 {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestShortSecrets: what is too short for it is left, and costs nothing.
func TestShortSecrets(t *testing.T) {
	for _, secret := range []string{"", "1234567", "short\nlines\nof it", "-----BEGIN KEY-----\n"} {
		if !redact.New(secret, "").Empty() {
			t.Errorf("%q", secret)
		}
	}
	var none redact.Redactor
	if none.String("1234567") != "1234567" || none.Header(http.Header{"A": {"b"}}) {
		t.Error("nil redacts")
	}
	pem := redact.New("-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIBAQC7\n-----END KEY-----\n", "")
	if got := pem.String("-----BEGIN KEY-----\r\nMIIEvQIBADANBgkqhkiG9w0BAQ\r\nEFAASCBKcwggSjAgEAAoIBAQC7\r\n-----END KEY-----"); strings.Count(got, "*") != 52 {
		t.Errorf("%q", got)
	}
}

// TestNothingPrintsARedactor: it holds the secret in the clear.
func TestNothingPrintsARedactor(t *testing.T) {
	r := redact.New("sk-proj-Zx81kQ0pLmVq45fT6lKg", "")
	holder := struct {
		R, r redact.Redactor
		p    *redact.Redactor
	}{r, r, &r}
	marshalled, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "r", r, "holder", holder)
	said := string(marshalled) + log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		said += fmt.Sprintf(verb, r) + fmt.Sprintf(verb, holder) + fmt.Sprintf(verb, &holder)
	}
	if strings.Contains(said, "Zx81k") || strings.Contains(said, hex.EncodeToString([]byte("Zx81k"))) {
		t.Error(said)
	}
}

// chunks is a reader that gives a text in pieces that were chosen.
type chunks struct {
	text  string
	sizes []int
	last  bool // the end comes with the last bytes
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := len(c.text)
	if len(c.sizes) > 0 {
		n, c.sizes = min(n, c.sizes[0]), c.sizes[1:]
	}
	n = copy(p, c.text[:n])
	c.text = c.text[n:]
	if c.text == "" && c.last {
		return n, io.EOF
	}
	return n, nil
}

func (*chunks) Close() error { return nil }

// naive marks every run that a text and a spelling have in common and that shows
// the secret, found by trying all.
func naive(text, secret string) string {
	out := []byte(text)
	for _, form := range []string{secret, hex.EncodeToString([]byte(secret))} {
		per := len(form) / len(secret)
		for i := range text {
			for a := range form {
				n := 0
				for i+n < len(text) && a+n < len(form) && text[i+n] == form[a+n] {
					n++
				}
				if n == 0 {
					continue
				}
				piece := secret[a/per : (a+n-1)/per+1]
				telling := n == len(form) || len(piece) >= 16 ||
					len(piece) >= 8 && strings.ContainsAny(piece, "0123456789") && strings.ContainsAny(piece, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
				if telling {
					copy(out[i:], strings.Repeat("*", n))
				}
			}
		}
	}
	return string(out)
}

// TestChunksDoNotMatter: however an answer is cut into chunks, the agent reads
// what it would of the whole, which is what trying every place would leave of it.
func TestChunksDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few letters, so that pieces of the secret come up by themselves.
		secret := rapid.StringMatching(`[ab1]{8,40}`).Draw(t, "secret")
		part := rapid.Custom(func(t *rapid.T) string {
			from := rapid.IntRange(0, len(secret)-1).Draw(t, "from")
			piece := secret[from:rapid.IntRange(from, len(secret)).Draw(t, "to")]
			return rapid.SampledFrom([]string{piece, secret, hex.EncodeToString([]byte(piece)), "\n", "x", "a", "b1", "61"}).Draw(t, "part")
		})
		text := strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "parts"), "")
		want := naive(text, secret)
		r := redact.New(secret, "")
		if got := r.String(text); got != want {
			t.Fatalf("%q of %q became\n%q, want\n%q", text, secret, got, want)
		}
		c := &chunks{text, rapid.SliceOfN(rapid.IntRange(1, 9), 0, 200).Draw(t, "sizes"), rapid.Bool().Draw(t, "last")}
		reader := r.NewReader(c)
		buffer := make([]byte, 4<<10)
		var got strings.Builder
		for {
			n, err := reader.Read(buffer)
			got.Write(buffer[:n])
			if err == io.EOF {
				break
			}
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
		}
		if got.String() != want {
			t.Fatalf("%q of %q in chunks became\n%q, want\n%q", text, secret, got.String(), want)
		}
		if reader.Found() != (got.String() != text) && !strings.Contains(text, "*") {
			t.Fatal("it does not say what it found")
		}
	})
}

// TestEverySpellingInEveryTwo: the secret cut in two at every byte is found all the same.
func TestEverySpellingInEveryTwo(t *testing.T) {
	for _, secret := range secrets[:4] {
		r := redact.New(secret, "")
		for name, text := range spellings(secret) {
			in := "before " + text + " behind"
			want := r.String(in)
			for cut := range in {
				var got strings.Builder
				reader := r.NewReader(&chunks{text: in, sizes: []int{cut + 1}})
				if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{reader}, make([]byte, 4<<10)); err != nil || got.String() != want {
					t.Errorf("%s of %q, cut behind %d: %q, want %q; %v", name, secret, cut, got.String(), want, err)
				}
			}
		}
	}
}

// TestEventsAreNotHeld: what ends with a line goes out whole, whatever the secret
// begins with; of what may begin a piece no more is kept than that.
func TestEventsAreNotHeld(t *testing.T) {
	r := redact.New("data-Zx81kQ0pLm\nid-Vq45fT6lKg", "")
	read := func(chunk ...string) (got []string) {
		t.Helper()
		sizes := []int{}
		for _, c := range chunk {
			sizes = append(sizes, len(c))
		}
		reader := r.NewReader(&chunks{text: strings.Join(chunk, ""), sizes: sizes})
		p := make([]byte, 1<<10)
		for {
			n, err := reader.Read(p)
			if n > 0 {
				got = append(got, string(p[:n]))
			}
			if err != nil {
				return got
			}
		}
	}
	for _, event := range []string{"data: 1\n\n", "data: data-Zx\r\n\r\n", "\n", "data: Zx81kQ\r\r", "{\"data-Zx\":1}\n"} {
		if got := read(event, event); len(got) != 2 || got[0] != event {
			t.Errorf("%q came as %q", event, got)
		}
	}
	if got := read("data: data-Zx", "81kQ0pLm\n"); len(got) != 2 || got[0] != "data: " || got[1] != "***************\n" {
		t.Errorf("%q", got)
	}
	if got := read("the dat", "e."); len(got) != 2 || got[0] != "the " || got[1] != "date." {
		t.Errorf("%q", got)
	}
	// Nothing can follow the end of it.
	if got := read("ends in 0pLm", "."); !strings.HasPrefix(got[0], "ends in 0pL") {
		t.Errorf("%q", got)
	}
	// What follows a piece that has gone out marked is of it, too.
	if got := read("data-Zx81kQ0", "p", "L", "m", "."); strings.Join(got, "|") != "************|*|*|*|." {
		t.Errorf("%q", got)
	}
}

// TestAnAnswerThatBreaksOff: its error comes behind what it had said.
func TestAnAnswerThatBreaksOff(t *testing.T) {
	r := redact.New("Zx81kQ0pLm", "")
	reader := r.NewReader(io.NopCloser(io.MultiReader(strings.NewReader("a Zx81"), iotest.ErrReader(io.ErrUnexpectedEOF))))
	got, p := "", make([]byte, 100)
	for {
		n, err := reader.Read(p)
		got += string(p[:n])
		if err != nil {
			if err != io.ErrUnexpectedEOF || got != "a Zx81" {
				t.Error(got, err)
			}
			break
		}
	}
	if _, err := reader.Read(p[:2]); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
}

// drawn is a long secret.
func drawn(length int) string {
	source := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, length)
	for i := range text {
		text[i] = "0123456789abcdefABCDEF"[source.IntN(22)]
	}
	return string(text)
}

// TestLittleRoom: a reader with less room than the secret takes reads the same.
func TestLittleRoom(t *testing.T) {
	password := drawn(4400)
	r := redact.New(password, "AWS:"+password)
	text := strings.Repeat("data: nothing to see\n\n", 1000) + "data: " + base64.StdEncoding.EncodeToString([]byte("AWS:"+password)) + "\n\n" + strings.Repeat("data: more\n\n", 1000)
	want := r.String(text)
	for _, room := range []int{1, 7, 4 << 10, 32 << 10} {
		sizes := make([]int, 4000)
		for i := range sizes {
			sizes[i] = 1 + i%500
		}
		var got strings.Builder
		n, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{r.NewReader(&chunks{text, sizes, false})}, make([]byte, room))
		if err != nil || got.String() != want {
			t.Errorf("in %d bytes: %d of %d, %v", room, n, len(text), err)
		}
	}
}

// TestALongSecretThatIsRepeated is found in time that grows with the text alone, and
// not with the length of the secret, too: that would be minutes.
func TestALongSecretThatIsRepeated(t *testing.T) {
	text := drawn(60_000)
	r := redact.New(text, "")
	whole := strings.Repeat(text, 30)
	began := cpu(t)
	if got := r.String(whole); strings.Trim(got, "*") != "" {
		t.Error("it shows")
	}
	if took := cpu(t) - began; took > 5*time.Second {
		t.Errorf("it took %s of the processor", took)
	}
}

// cpu is the processor's time that this process has had.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

// BenchmarkReader reads an answer of a megabyte in which nothing is found.
func BenchmarkReader(b *testing.B) {
	text := strings.Repeat(`{"id":17,"name":"an item of some list","url":"https://api.example.com/v1/items/17","sha":"5f4dcc3b5aa765d61d8327deb882cf99"},`, 1<<20/125)
	for _, secret := range []string{secrets[0], strings.Repeat("eyJhbGciOi.JIUz1NiJ9_", 50)} {
		b.Run(fmt.Sprintf("secret=%d", len(secret)), func(b *testing.B) {
			r := redact.New(secret, "")
			p := make([]byte, 32<<10)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				reader := r.NewReader(io.NopCloser(strings.NewReader(text)))
				for {
					if _, err := reader.Read(p); err != nil {
						break
					}
				}
			}
		})
	}
}

// BenchmarkNew makes a redactor, as is done once for each credential.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		redact.New(secrets[0], "")
	}
}
