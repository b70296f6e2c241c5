package receipts_test

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"agentgw/internal/receipts"
)

// subject is a log as a verifier gets it, in memory so that it can be altered:
// the files of its folder, and what the auditor has kept.
type subject struct {
	files        map[string][]byte
	vkey, anchor []byte // nil: no such file
	folder       string // below the data folder; "" is none
	irregular    string // what stands in the folder under the name of a segment and is none

	// framing: only lines that are no entries were altered, in a way that the
	// format allows. A checkpoint line may be missing or stand twice, and which
	// entries were written together is under no signature.
	framing bool
	// signed: the log's own key has signed it as it is. Then it is no altered log
	// but another one, and wrong only where it breaks a rule of the format.
	signed bool
	// wrong: it does break one.
	wrong bool
}

func (s subject) clone() subject {
	s.files = maps.Clone(s.files)
	return s
}

func (s subject) segments() []string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.files)), func(name string) bool { return !strings.HasSuffix(name, ".jsonl") })
	return names
}

// store writes the log below dir and returns the paths of its key and anchor.
func (s subject) store(t *testing.T, dir string) (vkey, anchor string) {
	t.Helper()
	folder := filepath.Join(dir, "data", s.folder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range s.files {
		write(t, filepath.Join(folder, name), b)
	}
	switch s.irregular {
	case "a folder":
		os.Mkdir(filepath.Join(folder, "00000000000000000099.jsonl"), 0o700)
	case "a link":
		name := s.segments()[0]
		os.Rename(filepath.Join(folder, name), filepath.Join(dir, name))
		os.Symlink(filepath.Join(dir, name), filepath.Join(folder, name))
	}
	vkey, anchor = filepath.Join(dir, "log.vkey"), filepath.Join(dir, "anchor")
	for path, b := range map[string][]byte{vkey: s.vkey, anchor: s.anchor} {
		if b != nil {
			write(t, path, b)
		}
	}
	return vkey, anchor
}

// written is a log that the real writer wrote, with what else of it an altered
// one may be given.
type written struct {
	subject
	name    string
	skey    string
	anchors [][]byte // among them one that is larger than the log, where it was signed
	trees   [][]byte // checkpoints of tenants' trees
}

func checkpointsIn(files map[string][]byte) (notes [][]byte) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for line := range strings.Lines(string(files[name])) {
			if text, ok := strings.CutPrefix(line, `{"checkpoint":"`); ok {
				text, _ = strings.CutSuffix(text, "\"}\n")
				notes = append(notes, []byte(strings.ReplaceAll(text, `\n`, "\n")))
			}
		}
	}
	return notes
}

// spot is one line of a subject.
type spot struct {
	file       string
	begin, end int
	kind       byte // h, b, c, r, or ? where a line was altered
}

func (s subject) spots(kinds string) (list []spot) {
	for _, name := range s.segments() {
		at := 0
		for line := range bytes.Lines(s.files[name]) {
			kind := byte('?')
			for prefix, k := range map[string]byte{`{"segment":`: 'h', `{"batch":`: 'b', `{"checkpoint":`: 'c', `{"v":`: 'r'} {
				if bytes.HasPrefix(line, []byte(prefix)) {
					kind = k
				}
			}
			if strings.IndexByte(kinds, kind) >= 0 {
				list = append(list, spot{name, at, at + len(line), kind})
			}
			at += len(line)
		}
	}
	return list
}

func (s subject) line(p spot) []byte { return s.files[p.file][p.begin:p.end] }

func (s subject) put(file string, begin, end int, with ...[]byte) {
	b := s.files[file]
	s.files[file] = slices.Concat(b[:begin], slices.Concat(with...), b[end:])
}

func (s subject) replace(p spot, with ...[]byte) { s.put(p.file, p.begin, p.end, with...) }

// cut leaves what stands before an offset of a file.
func (s subject) cut(file string, at int) {
	for _, name := range s.segments() {
		if name > file {
			delete(s.files, name)
		}
	}
	s.files[file] = s.files[file][:at]
}

// entries are the record lines of a log, and the lines that stand between them
// but for checkpoints: all up to the size-th record.
func (s subject) entries(size uint64) (records, frame []string) {
	for _, p := range s.spots("hbr") {
		if uint64(len(records)) == size {
			break
		}
		line := string(s.line(p))
		if p.kind == 'r' {
			records = append(records, line)
		}
		frame = append(frame, line)
	}
	return records, frame
}

// removed are the leaves of entries that retention has removed.
func (s subject) removed() (leaves [][32]byte) {
	if s.files["pruned"] == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		if first, ok := strings.CutSuffix(name, ".leaves"); ok && first+".jsonl" < s.segments()[0] {
			for entry := range slices.Chunk(s.files[name], 40) {
				leaves = append(leaves, [32]byte(entry))
			}
		}
	}
	return leaves
}

// resign makes of altered records a log that the holder of the key would have
// written: batches, checkpoints and tree as they have to be.
func (s *subject) resign(t *testing.T, skey string) {
	t.Helper()
	signer, err := note.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	leaves := s.removed()
	checkpoint := func() []byte {
		root := treeHash(leaves)
		signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", signer.Name(), len(leaves), base64.StdEncoding.EncodeToString(root[:]))}, signer)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	for _, name := range s.segments() {
		lines := slices.Collect(bytes.Lines(s.files[name]))
		var b bytes.Buffer
		for i, line := range lines {
			switch {
			case bytes.HasPrefix(line, []byte(`{"batch":`)):
				count, size := 0, 0
				for _, next := range lines[i+1:] {
					if bytes.HasPrefix(next, []byte(`{"batch":`)) || bytes.HasPrefix(next, []byte(`{"checkpoint":`)) {
						break
					}
					count, size = count+1, size+len(next)
				}
				line = fmt.Appendf(nil, "{\"batch\":{\"first\":%d,\"count\":%d,\"bytes\":%d}}\n", len(leaves), count, size)
			case bytes.HasPrefix(line, []byte(`{"checkpoint":`)):
				line = checkpointLineOf(checkpoint())
			case bytes.HasPrefix(line, []byte(`{"segment":`)):
			default:
				leaves = append(leaves, leafHash(bytes.TrimSuffix(line, []byte("\n"))))
			}
			b.Write(line)
		}
		s.files[name] = b.Bytes()
	}
	s.files["checkpoint"] = checkpoint()
	s.anchor = s.files["checkpoint"]
	s.signed = true
}

func checkpointLineOf(signed []byte) []byte {
	return fmt.Appendf(nil, "{\"checkpoint\":\"%s\"}\n", bytes.ReplaceAll(signed, []byte("\n"), []byte(`\n`)))
}

// alteration makes another log of s, a clone of what w wrote; other is a log of
// another key. It reports whether it could.
type alteration struct {
	name string
	make func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool
}

func pick[T any](r *mathrand.Rand, list []T) T { return list[r.IntN(len(list))] }

// respellings turn a piece of JSON into another that says the same, or nearly.
var respellings = []struct {
	name, pattern, with string
}{
	{"a space after a colon", `":`, `": `},
	{"a space after a comma", `,"`, `, "`},
	{"a letter escaped", `"(id|kind|log|seq|first|checkpoint)"`, `"\u00${1}"`}, // damage of another kind: no such escape
	{"a capital escaped", `:"a`, `:"\u0061`},
	{"a slash escaped", `/`, `\/`},
	{"a line end escaped otherwise", `\\n`, `\u000a`},
	{"a dash escaped", `— `, `\u2014 `},
	{"capital hex digits", `\\u200b`, `\u200B`},
	{"an escape unescaped", `\\u0085`, "\u0085"},
	{"another escape for the same", `\\u000a`, `\n`},
	{"a number as 1e0", `":1,`, `":1e0,`},
	{"a number as 1.0", `":([0-9]+),"`, `":${1}.0,"`},
	{"a number with a zero before it", `":([0-9]+)`, `":0${1}`},
	{"a number with a sign", `":([0-9]+)`, `":+${1}`},
	{"a number as a text", `"seq":([0-9]+)`, `"seq":"${1}"`},
	{"an empty text", `,"decision"`, `,"code":"","decision"`},
	{"an empty text in its place", `,"kind":"([a-z]+)"(.*),"decision":"([a-z]+)"`, `,"kind":"${1}"${2},"decision":"${3}","code":""`},
	{"a zero", `,"ending"`, `,"status":0,"ending"`},
	{"a null", `,"tag"`, `,"vkey":null,"tag"`},
	{"a false", `,"tag"`, `,"cut":false,"tag"`},
	{"an empty list", `,"service"`, `,"chain":[],"service"`},
	{"a measure left out", `,"in":0`, ``},
	{"a member twice", `,"seq":([0-9]+)`, `,"seq":${1},"seq":${1}`},
	{"a member that nobody knows", `,"tag"`, `,"note":"x","tag"`},
	{"members exchanged", `,"seq":([0-9]+),"tenant":"([^"]*)"`, `,"tenant":"${2}","seq":${1}`},
	{"another zone", `000Z"`, `000+00:00"`},
	{"a space at the end", `\n`, " \n"},
	{"a carriage return", `\n`, "\r\n"},
	{"an empty line", `\n`, "\n\n"},
	{"a byte order mark", `^`, "\ufeff"},
	{"a kind of later", `"kind":"[a-z]+"`, `"kind":"future"`},
	{"a reserved kind", `"kind":"[a-z]+"`, `"kind":"heartbeat"`},
	{"a later version", `"v":1`, `"v":2`},
	{"a version of many digits", `"v":1`, `"v":` + strings.Repeat("7", 5000)},
	{"a control byte", `"kind":"`, "\"kind\":\"\x1b[2J"},
	{"an ending of later", `"ending":"complete"`, `"ending":"exploded"`},
	{"a decision of later", `"decision":"[a-z]+"`, `"decision":"perhaps"`},
	{"a date that there is not", `-05-04T`, `-02-29T`},
	{"a month that there is not", `-05-04T`, `-13-04T`},
	{"an hour that there is not", `T1[0-9]:`, `T24:`},
	{"a text that is not UTF-8", `"id":"`, "\"id\":\"\xff"},
	{"half of a surrogate pair", `"id":"`, "\"id\":\"\xed\xa0\x80"},
	{"no id", `"id":"[^"]*",`, ``},
	{"an empty id", `"id":"[^"]*"`, `"id":""`},
	{"a number over 2^53-1", `"(in|out|status)":[0-9]+`, `"${1}":9007199254740992`},
	{"the number 2^53-1", `"(in|out|status)":[0-9]+`, `"${1}":9007199254740991`},
	{"another tag character", `"tag":"([^"]*)[AQgw]"`, `"tag":"${1}B"`},
}

// stories are changes of a record that leave its spelling right.
var stories = []struct {
	name, pattern, with string
	wrong               bool // whoever signs it
}{
	{"a seq left out", `"seq":([0-9])`, `"seq":1${1}`, true},
	{"another tenant", `"tenant":"[^"]*"`, `"tenant":"tenant:nobody"`, false},
	{"no tenant", `,"tenant":"[^"]*"`, ``, false},
	{"a status", `"status":[0-9]+`, `"status":299`, false},
	{"more bytes out", `"out":[0-9]+`, `"out":999`, false},
	{"heads of more trees", `"heads":{"count":([0-9]+)`, `"heads":{"count":1${1}`, true},
	{"heads of none", `"heads":{[^}]*}`, `"heads":{"count":0,"root":"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}`, true}, // the root of no leaf
	{"other heads", `"root":"..`, `"root":"AA`, true},
	{"heads that are not base64", `"root":"..`, `"root":"!!`, true},
	{"heads left out", `,"heads":{[^}]*}`, ``, true},
	{"heads of another kind", `"kind":"heads"`, `"kind":"heartbeat"`, true},
	{"another time", `:00:0`, `:00:1`, false},
	{"another key of the log", `"vkey":"agentgate/..`, `"vkey":"agentgate/zz`, true},
	{"no key record", `"kind":"key"`, `"kind":"heartbeat"`, true},
	{"an intent for an outcome", `"kind":"outcome"`, `"kind":"intent"`, false},
	{"a refusal for an outcome", `"kind":"outcome"`, `"kind":"refusal"`, false},
	{"an outcome for an intent", `"kind":"intent"(.*),"tag"`, `"kind":"outcome"${1},"tag"`, false},
	{"an id of another receipt", `"id":"[^"]*"`, `"id":"a"`, false},
	{"no decision", `"decision":"[a-z]+",?`, ``, false},
	{"a gap for a refusal", `"kind":"refusal"`, `"kind":"gap"`, true},
	{"a refusal for a gap", `"kind":"gap"`, `"kind":"refusal"`, true},
	{"a summary for a gap", `"kind":"gap"`, `"kind":"summary"`, false},
	{"a gap of more", `"count":([0-9]+),"reason"`, `"count":1${1},"reason"`, false},
	{"a gap of none", `"count":[0-9]+,"reason"`, `"count":0,"reason"`, true},
	{"a gap without a number", `"count":[0-9]+,"reason"`, `"reason"`, true},
	{"a gap without a reason", `,"reason":"[^"]*"`, ``, false},
	{"a gap for another reason", `"reason":"[^"]*"`, `"reason":"a reason of later"`, false},
	{"a gap on a day that there is not", `"from":"[^T]*T`, `"from":"2026-02-30T`, true},
	{"a gap that ends never", `"to":"[^"]*",`, ``, true},
	{"a summary for the end of another", `"kind":"summary","id":"[^"]*"`, `"kind":"summary","id":"r0"`, false},
	{"a refusal in the place of a summary's end", `"kind":"(refusal|heartbeat)","id":"[^"]*"`, `"kind":"${1}","id":"s1"`, false},
	{"the end of a summary that is a beginning", `"ending":"complete",(.*)"reason":"flood"`, `${1}"reason":"flood"`, true},
	{"a beginning with an end", `"status":429,`, `"status":429,"ending":"outcome_unknown",`, false},
	{"a reason for another kind", `"kind":"(intent|outcome|heartbeat)"(.*),"tag"`, `"kind":"${1}"${2},"reason":"disk_full","tag"`, true},
	{"interval", `,"tag"`, `,"interval":true,"tag"`, false},
}

func rewrite(r *mathrand.Rand, s *subject, kinds, pattern, with string) bool {
	var fit []spot
	expression := regexp.MustCompile(pattern)
	for _, p := range s.spots(kinds) {
		if expression.Match(s.line(p)) {
			fit = append(fit, p)
		}
	}
	if len(fit) == 0 {
		return false
	}
	p := pick(r, fit)
	line := s.line(p)
	at := pick(r, expression.FindAllSubmatchIndex(line, -1))
	changed := expression.Expand(nil, []byte(with), line, at)
	s.put(p.file, p.begin+at[0], p.begin+at[1], changed)
	return true
}

var alterations = []alteration{
	{"nothing", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool { return true }},
	{"a bit flipped", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		name := pick(r, slices.Sorted(maps.Keys(s.files)))
		if len(s.files[name]) == 0 {
			return false
		}
		at := r.IntN(len(s.files[name]))
		s.put(name, at, at+1, []byte{s.files[name][at] ^ 1<<r.IntN(8)})
		return true
	}},
	{"what is left of removed entries altered", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		text := s.files["pruned"]
		if text == nil {
			return false
		}
		list := slices.Collect(bytes.Lines(text))
		i, j := r.IntN(len(list)), r.IntN(len(list))
		switch r.IntN(8) {
		case 0:
			delete(s.files, "pruned")
		case 1:
			list = slices.Delete(list, i, i+1)
		case 2:
			list = slices.Insert(list, i, list[j])
		case 3:
			list[i], list[j] = list[j], list[i]
		case 4:
			list = list[:i]
		case 5:
			list[i] = regexp.MustCompile(`:[0-9]+`).ReplaceAll(list[i], pick(r, [][]byte{[]byte(":0"), []byte(":1"), []byte(":7"), []byte(":01"), []byte(":9007199254740992")}))
		case 6:
			list[i] = bytes.Replace(list[i], []byte("true"), []byte("false"), 1)
		case 7: // it goes on
			name := s.segments()[0]
			if len(s.segments()) > 1 {
				delete(s.files, name)
			}
		}
		if s.files["pruned"] != nil {
			s.files["pruned"] = bytes.Join(list, nil)
		}
		return true
	}},
	{"a byte of what is left of removed entries", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		text := s.files["pruned"]
		if text == nil {
			return false
		}
		at := r.IntN(len(text))
		s.put("pruned", at, at+1, pick(r, [][]byte{nil, {0}, {text[at], text[at]}, {' ', text[at]}, {text[at] ^ 1}, {text[at] ^ 0x20}, {'\n', text[at]}}))
		return true
	}},
	{"what is left of removed entries beside a whole log", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		if s.files["pruned"] != nil || other.files["pruned"] == nil {
			return false
		}
		s.files["pruned"] = other.files["pruned"]
		return true
	}},
	{"a byte out, in, zeroed or doubled", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p := pick(r, s.spots("hbcr"))
		at := p.begin + r.IntN(p.end-p.begin)
		c := s.files[p.file][at]
		s.put(p.file, at, at+1, pick(r, [][]byte{nil, {0}, {c, c}, {' ', c}, {'\n', c}, {0xff}}))
		return true
	}},
	{"a line end lost", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p := pick(r, s.spots("hbcr"))
		s.put(p.file, p.end-1, p.end, pick(r, [][]byte{nil, {0}, {' '}, {'\r'}}))
		return true
	}},
	{"cut anywhere", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		name := pick(r, s.segments())
		s.cut(name, r.IntN(len(s.files[name])+1))
		return true
	}},
	{"cut anywhere, without the file checkpoint", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		name := pick(r, s.segments())
		s.cut(name, r.IntN(len(s.files[name])+1))
		delete(s.files, "checkpoint")
		s.anchor = pick(r, append([][]byte{nil}, w.anchors...))
		return true
	}},
	{"cut at a line's border", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p := pick(r, s.spots("hbcr"))
		s.cut(p.file, p.end)
		if r.IntN(2) == 0 {
			s.files["checkpoint"] = pick(r, w.anchors)
		} else {
			delete(s.files, "checkpoint")
		}
		s.anchor = pick(r, append([][]byte{nil}, w.anchors...))
		return true
	}},
	{"a line out", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p := pick(r, s.spots("hbcr"))
		s.replace(p)
		s.framing = p.kind == 'c'
		return true
	}},
	{"a line twice", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p := pick(r, s.spots("hbcr"))
		s.replace(p, s.line(p), s.line(p))
		s.framing = p.kind == 'c'
		return true
	}},
	{"two lines exchanged", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p, q := pick(r, s.spots("hbcr")), pick(r, s.spots("hbcr"))
		if p == q {
			return false
		}
		if p.file == q.file && p.begin > q.begin {
			p, q = q, p
		}
		a, b := bytes.Clone(s.line(p)), bytes.Clone(s.line(q))
		s.replace(q, a) // the later one first
		s.replace(p, b)
		return true
	}},
	{"neighbours exchanged", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		all := s.spots("hbcr")
		i := r.IntN(len(all) - 1)
		p, q := all[i], all[i+1]
		if p.file != q.file || bytes.Equal(s.line(p), s.line(q)) {
			return false
		}
		s.put(p.file, p.begin, q.end, bytes.Clone(s.line(q)), bytes.Clone(s.line(p)))
		return true
	}},
	{"records of a batch in another order", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		all := s.spots("hbcr")
		for _, i := range r.Perm(len(all) - 1) {
			if p, q := all[i], all[i+1]; p.kind == 'r' && q.kind == 'r' && p.file == q.file {
				s.put(p.file, p.begin, q.end, bytes.Clone(s.line(q)), bytes.Clone(s.line(p)))
				return true
			}
		}
		return false
	}},
	{"a record in another place", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p, q := pick(r, s.spots("r")), pick(r, s.spots("hbcr"))
		if bytes.Equal(s.line(p), s.line(q)) {
			return false
		}
		s.replace(q, s.line(q), s.line(p))
		return true
	}},
	{"a checkpoint of before, or of the other log", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p := pick(r, s.spots("c"))
		signed := pick(r, append(checkpointsIn(s.files), checkpointsIn(other.files)...))
		if bytes.Equal(s.line(p), checkpointLineOf(signed)) {
			return false
		}
		s.replace(p, checkpointLineOf(signed))
		return true
	}},
	{"another checkpoint behind the end", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		name := s.segments()[len(s.segments())-1]
		signed := pick(r, slices.Concat(checkpointsIn(s.files), checkpointsIn(other.files), w.anchors))
		s.files[name] = slices.Concat(s.files[name], checkpointLineOf(signed))
		s.framing = true
		return true
	}},
	{"another file checkpoint", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		s.files["checkpoint"] = pick(r, slices.Concat(w.anchors, other.anchors, checkpointsIn(s.files), [][]byte{{}, make([]byte, 230), []byte("\n"), []byte("hello\n"),
			bytes.TrimSpace(w.anchors[0]), append(bytes.Clone(w.anchors[0]), '\n'), append(bytes.Clone(w.anchors[0]), 0)}))
		return true
	}},
	{"bits of base64 that say nothing", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
		name := pick(r, slices.Sorted(maps.Keys(s.files)))
		ends := regexp.MustCompile(`[A-Za-z0-9+/]=`).FindAllIndex(s.files[name], -1) // of roots and signatures
		if len(ends) == 0 {
			return false
		}
		at := pick(r, ends)[0]
		s.put(name, at, at+1, []byte{alphabet[strings.IndexByte(alphabet, s.files[name][at])^1]})
		return true
	}},
	{"two signatures where one may stand", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		signed := w.anchors[0]
		twice := slices.Concat(signed, signed[bytes.LastIndex(signed, []byte("— ")):])
		if r.IntN(2) == 0 {
			s.files["checkpoint"] = twice
			return true
		}
		p := s.spots("c")[len(s.spots("c"))-1]
		s.replace(p, checkpointLineOf(twice))
		return true
	}},
	{"checkpoints by another key of the same name", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		skey, vkey, err := note.GenerateKey(rand.Reader, originOf(string(w.vkey)))
		if err != nil {
			t.Fatal(err)
		}
		anchor := s.anchor
		switch r.IntN(4) {
		case 0:
			s.resign(t, skey)
		case 1: // and the headers say so
			for name, b := range s.files {
				s.files[name] = bytes.ReplaceAll(b, bytes.TrimSpace(s.vkey), []byte(vkey))
			}
			s.resign(t, skey)
		case 2: // and the file checkpoint is the old one
			old := s.files["checkpoint"]
			s.resign(t, skey)
			s.files["checkpoint"] = old
		case 3: // of one line
			by := s.clone()
			by.resign(t, skey)
			p := pick(r, s.spots("c"))
			i := slices.Index(s.spots("c"), p)
			s.replace(p, by.line(by.spots("c")[i]))
		}
		s.anchor = pick(r, [][]byte{nil, anchor, s.anchor})
		return true
	}},
	{"the header altered", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		p := pick(r, s.spots("h"))
		line := string(s.line(p))
		mine, theirs := string(bytes.TrimSpace(w.vkey)), string(bytes.TrimSpace(other.vkey))
		changed := pick(r, []string{
			strings.Replace(line, mine, theirs, 1), strings.Replace(line, `"log":"`+originOf(mine), `"log":"`+originOf(theirs), 1),
			strings.ReplaceAll(strings.Replace(line, mine, theirs, 1), originOf(mine), originOf(theirs)),
			strings.Replace(line, `"first":`, `"first":1`, 1), strings.Replace(line, `"v":1`, `"v":2`, 1), strings.Replace(line, `+A`, `+B`, 1),
			string(other.line(other.spots("h")[0])), strings.Replace(line, `"first":0`, `"first":7`, 1), strings.Replace(line, originOf(mine), "agentgate/x", 1),
		})
		if changed == line {
			return false
		}
		s.replace(p, []byte(changed))
		if r.IntN(2) == 0 {
			delete(s.files, "checkpoint")
		}
		if r.IntN(3) == 0 { // and something else is wrong behind it
			if q := pick(r, s.spots("cr")); len(s.line(q)) > 10 {
				s.put(q.file, q.begin+5, q.begin+6, []byte("~"))
			}
		}
		return true
	}},
	{"the id of another record, under the log's own key", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		id := regexp.MustCompile(`"id":"[^"]*"`)
		all := s.spots("r")
		i := r.IntN(len(all))
		p := all[min(i+1+r.IntN(4), len(all)-1)] // not far behind, where it may still be open
		with := bytes.Clone(id.Find(s.line(all[i])))
		at := id.FindIndex(s.line(p))
		s.put(p.file, p.begin+at[0], p.begin+at[1], with)
		s.resign(t, w.skey)
		return true
	}},
	{"a batch line altered", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		which := pick(r, []string{"first", "count", "bytes"})
		with := pick(r, []string{"0", "1", "2", "77", "9007199254740991", "9007199254740992", "18446744073709551616", "-1", "99999"})
		before := s.clone()
		if !rewrite(r, s, "b", `"`+which+`":[0-9]+`, `"`+which+`":`+with) {
			return false
		}
		return !maps.EqualFunc(before.files, s.files, bytes.Equal)
	}},
	{"two batches made one", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		all := s.spots("hbcr")
		for _, i := range r.Perm(len(all) - 1) {
			if all[i].kind != 'c' || all[i+1].kind != 'b' || all[i].file != all[i+1].file || all[i-1].kind != 'r' {
				continue
			}
			s.put(all[i].file, all[i].begin, all[i+1].end)
			s.resignBatches()
			s.framing = true
			return true
		}
		return false
	}},
	{"bytes behind the end", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		name := s.segments()[len(s.segments())-1]
		record, batch := s.line(pick(r, s.spots("r"))), s.line(pick(r, s.spots("b")))
		tail := pick(r, [][]byte{[]byte("hello\n"), []byte("x"), make([]byte, 4096), record, batch, slices.Concat(batch, record), []byte("\n"),
			bytes.Repeat([]byte("a"), 70_000), s.files[s.segments()[0]], slices.Concat(make([]byte, 70_000), checkpointLineOf(pick(r, w.anchors)))})
		s.files[name] = slices.Concat(s.files[name], tail)
		s.framing = true
		return true
	}},
	{"batches that nobody signed", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		name := s.segments()[len(s.segments())-1]
		records := s.spots("r")
		seq := strings.Count(string(bytes.Join(slices.Collect(maps.Values(s.files)), nil)), `"tenant":"tenant:acme"`)
		for i := range 1 + r.IntN(3) {
			line := fmt.Sprintf(`{"v":1,"kind":"refusal","id":"forged-%d","t":"2026-05-04T12:00:00.000000Z","seq":%d,"tenant":"tenant:acme","decision":"refused","tag":"AAAAAAAAAAAAAAAAAAAAAA"}`+"\n",
				i*r.IntN(2), seq+1+i+r.IntN(8)/7)
			s.files[name] = fmt.Appendf(s.files[name], "{\"batch\":{\"first\":%d,\"count\":1,\"bytes\":%d}}\n%s", len(records)+i, len(line), line)
		}
		s.framing = true
		return true
	}},
	{"an empty file", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		name := pick(r, s.segments())
		s.files[name] = nil
		if r.IntN(2) == 0 {
			s.cut(name, 0)
		}
		if r.IntN(2) == 0 {
			delete(s.files, "checkpoint")
			s.anchor = pick(r, append([][]byte{nil}, w.anchors...))
		}
		return true
	}},
	{"an empty segment more", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		s.files[fmt.Sprintf("%020d.jsonl", len(s.spots("r"))+r.IntN(3)-1)] = nil
		s.framing = true
		return true
	}},
	{"a missing file", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		delete(s.files, pick(r, slices.Sorted(maps.Keys(s.files))))
		if r.IntN(3) == 0 {
			delete(s.files, "checkpoint")
			s.anchor = pick(r, append([][]byte{nil}, w.anchors...))
		}
		return true
	}},
	{"no log at all", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		if r.IntN(2) == 0 {
			delete(s.files, "checkpoint")
		}
		for _, name := range s.segments() {
			delete(s.files, name)
		}
		s.folder = pick(r, []string{"receipts", ""})
		s.anchor = pick(r, [][]byte{nil, w.anchors[0]})
		return true
	}},
	{"a file that is not named as a segment is, or is none", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		switch r.IntN(4) {
		case 0:
			s.files[pick(r, []string{"x.jsonl", "1.jsonl", "09007199254740992.jsonl", "00009007199254740992.jsonl", "000000000000000000a0.jsonl", "99999999999999999999.jsonl"})] = nil
		case 1:
			s.files[pick(r, []string{".x.jsonl", "00000000000000000000.leaves", "x.jsonl.gz", "notes"})] = []byte("hello")
		case 2:
			s.irregular = "a folder"
		case 3:
			s.irregular = "a link"
		}
		return true
	}},
	{"segments exchanged or renamed", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		a, b := pick(r, s.segments()), pick(r, s.segments())
		if a == b {
			b = fmt.Sprintf("%020d.jsonl", r.IntN(40))
			if _, there := s.files[b]; there {
				return false
			}
			s.files[b] = s.files[a]
			delete(s.files, a)
			return true
		}
		s.files[a], s.files[b] = s.files[b], s.files[a]
		return true
	}},
	{"a segment of the other log", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		if bytes.Equal(w.vkey, other.vkey) {
			return false // a log of before is no other one
		}
		name := pick(r, s.segments())
		if bytes.HasPrefix(other.files[name], s.files[name]) {
			return false // it goes on as this one did
		}
		s.files[name] = other.files[other.segments()[min(slices.Index(s.segments(), name), len(other.segments())-1)]]
		return true
	}},
	{"another anchor", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		s.anchor = pick(r, slices.Concat(w.anchors, w.anchors, other.anchors, [][]byte{nil}))
		return true
	}},
	{"a checkpoint of a tenant's tree as the anchor", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		if len(w.trees) == 0 {
			return false
		}
		s.anchor = bytes.Clone(pick(r, w.trees))
		switch r.IntN(6) {
		case 0:
			s.anchor[r.IntN(len(s.anchor))] ^= 1 << r.IntN(8)
		case 1: // a tenant's and the log's, each under the other's signature
			a, b := bytes.LastIndex(s.anchor, []byte("— ")), bytes.LastIndex(w.anchors[0], []byte("— "))
			s.anchor = slices.Concat(s.anchor[:a], w.anchors[0][b:])
		case 2: // as the file checkpoint
			s.files["checkpoint"] = s.anchor
		case 3: // as a line
			name := s.segments()[len(s.segments())-1]
			s.files[name] = slices.Concat(s.files[name], checkpointLineOf(s.anchor))
			s.framing = true
		case 4:
			return rewrite(r, s, "r", `"out":[0-9]+`, `"out":999`)
		}
		return true
	}},
	{"a tenant's record told otherwise, against a checkpoint of its tree", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		if len(w.trees) == 0 || !rewrite(r, s, "r", `"(out|t)":([0-9"]+)`, `"${1}":${2}1`) {
			return false
		}
		s.resign(t, w.skey)
		s.anchor = pick(r, w.trees)
		return true
	}},
	{"the anchor altered", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		a := bytes.Clone(w.anchors[0])
		signature := a[bytes.LastIndex(a, []byte("— ")):]
		switch r.IntN(9) {
		case 0:
			a[r.IntN(len(a))] ^= 1 << r.IntN(8)
		case 1:
			a = pick(r, [][]byte{{}, []byte("\n"), []byte("hello"), make([]byte, 100)})
		case 2:
			a = slices.Concat([]byte(" \n\t"), a, []byte("\n\r\n"))
		case 3:
			a = append(a, "— witness.example/w AAAAAAAAAAAAAAAAAAAAAA==\n"...)
		case 4:
			theirs := other.anchors[0]
			a = append(a, theirs[bytes.LastIndex(theirs, []byte("— ")):]...)
		case 5:
			a = append(a, signature...)
		case 6:
			a = bytes.Replace(a, []byte("\n\n"), []byte("\nextension\n\n"), 1)
		case 7: // the two bits of base64 that decoders drop
			const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
			at := bytes.LastIndexByte(a, '=') - 1
			a[at] = alphabet[strings.IndexByte(alphabet, a[at])^1]
		case 8:
			a = slices.Concat(a[:len(a)-len(signature)], []byte("— witness.example/w AAAAAAAAAAAAAAAAAAAAAA==\n"), signature)
		}
		s.anchor = a
		return true
	}},
	{"the key altered", func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
		k := bytes.Clone(w.vkey)
		switch r.IntN(4) {
		case 0:
			k[r.IntN(len(k))] ^= 1 << r.IntN(8)
		case 1:
			k = other.vkey
		case 2:
			k = pick(r, [][]byte{{}, []byte("\n"), w.anchors[0], append(k, '\n'), append([]byte(" "), k...)})
		case 3:
			k = nil
		}
		s.vkey = k
		if r.IntN(2) == 0 {
			s.anchor = nil
		}
		return true
	}},
}

// allAlterations are those above three times, and each respelling and story once
// for whoever has no key, where it is a record's also for the holder of the log's.
func allAlterations() []alteration {
	list := slices.Concat(slices.Repeat(alterations, 3), slices.Repeat(borderAlterations, 2))
	add := func(name, kinds, pattern, with string, bySigner, wrong bool) {
		list = append(list, alteration{name, func(t *testing.T, r *mathrand.Rand, s *subject, w, other *written) bool {
			if !rewrite(r, s, kinds, pattern, with) {
				return false
			}
			if bySigner {
				s.resign(t, w.skey)
				s.wrong = wrong
			}
			return true
		}})
	}
	for _, c := range respellings {
		add("spelled otherwise: "+c.name, "hbcr", c.pattern, c.with, false, true)
		right := c.name == "a reserved kind" || c.name == "the number 2^53-1" // what a writer may write
		if breaks := strings.Contains(c.pattern, `\n`); !right && !breaks {
			add("under the log's own key: "+c.name, "r", c.pattern, c.with, true, true)
		}
	}
	for _, c := range stories {
		add("another story: "+c.name, "r", c.pattern, c.with, false, true)
		add("another story, under the log's own key: "+c.name, "r", c.pattern, c.with, true, c.wrong)
	}
	return list
}

// resignBatches makes each batch line say what follows it: no key is needed.
func (s *subject) resignBatches() {
	entries := 0
	for _, name := range s.segments() {
		lines := slices.Collect(bytes.Lines(s.files[name]))
		var b bytes.Buffer
		for i, line := range lines {
			if bytes.HasPrefix(line, []byte(`{"batch":`)) {
				count, size := 0, 0
				for _, next := range lines[i+1:] {
					if !bytes.HasPrefix(next, []byte(`{"v":`)) {
						break
					}
					count, size = count+1, size+len(next)
				}
				line = fmt.Appendf(nil, "{\"batch\":{\"first\":%d,\"count\":%d,\"bytes\":%d}}\n", entries, count, size)
				entries += count
			}
			b.Write(line)
		}
		s.files[name] = b.Bytes()
	}
}

// keptBy reads a log that was written below dir.
func keptBy(t *testing.T, name, dir string, further ...[]byte) *written {
	t.Helper()
	w := &written{name: name, subject: subject{files: map[string][]byte{}, folder: "receipts", vkey: []byte(keyOf(t, dir) + "\n")}}
	files, err := os.ReadDir(filepath.Join(dir, "receipts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Type().IsRegular() {
			w.files[f.Name()] = read(t, filepath.Join(dir, "receipts", f.Name()))
		}
	}
	w.skey = strings.TrimSpace(string(read(t, filepath.Join(dir, "receipt-signing-key"))))
	w.anchors = append(append(w.anchors, w.files["checkpoint"]), append(checkpointsIn(w.files), further...)...)
	w.anchor = w.files["checkpoint"]
	if signed, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts")); err == nil {
		w.anchor = signed
	}
	w.anchors = slices.CompactFunc(w.anchors, func(a, b []byte) bool { return cmp.Compare(string(a), string(b)) == 0 })
	return w
}
