package receipts_test

import (
	"bytes"
	mathrand "math/rand/v2"
	"strings"
	"testing"
)

// onBorder alters a line with which a log was handed over: text is up to its
// signatures, which are two.
func onBorder(change func(r *mathrand.Rand, s *subject, p spot, text string, signatures []string) [][]byte) func(*testing.T, *mathrand.Rand, *subject, *written, *written) bool {
	return func(_ *testing.T, r *mathrand.Rand, s *subject, _, _ *written) bool {
		var list []spot
		for _, p := range s.spots("c") {
			if bytes.Count(s.line(p), []byte("— ")) == 2 {
				list = append(list, p)
			}
		}
		if len(list) == 0 {
			return false
		}
		p := pick(r, list)
		line := strings.TrimSuffix(string(s.line(p)), "\"}\n")
		at := strings.Index(line, `\n\n`) + 4
		with := change(r, s, p, line[:at], strings.SplitAfter(line[at:], `\n`)[:2])
		if with == nil {
			return false
		}
		s.replace(p, with...)
		return true
	}
}

// borderAlterations are of what hands a log over to another key.
var borderAlterations = []alteration{
	{"a border by one key alone", onBorder(func(r *mathrand.Rand, _ *subject, _ spot, text string, by []string) [][]byte {
		return [][]byte{[]byte(text + pick(r, by) + "\"}\n")}
	})},
	{"a border by the keys in another order", onBorder(func(_ *mathrand.Rand, _ *subject, _ spot, text string, by []string) [][]byte {
		return [][]byte{[]byte(text + by[1] + by[0] + "\"}\n")}
	})},
	{"a border by one key twice", onBorder(func(r *mathrand.Rand, _ *subject, _ spot, text string, by []string) [][]byte {
		one := pick(r, by)
		return [][]byte{[]byte(text + one + one + "\"}\n")}
	})},
	{"a border with a signature of another", onBorder(func(r *mathrand.Rand, s *subject, _ spot, text string, by []string) [][]byte {
		other := string(s.line(pick(r, s.spots("c"))))
		if at := strings.Index(other, `\n\n`) + 4; strings.HasPrefix(other[at:], by[0]) {
			return nil
		} else {
			by[r.IntN(2)] = strings.SplitAfter(strings.TrimSuffix(other[at:], "\"}\n"), `\n`)[0]
		}
		return [][]byte{[]byte(text + by[0] + by[1] + "\"}\n")}
	})},
	{"a border without its last line end", onBorder(func(_ *mathrand.Rand, _ *subject, _ spot, text string, by []string) [][]byte {
		return [][]byte{[]byte(text + by[0] + strings.TrimSuffix(by[1], `\n`) + "\"}\n")}
	})},
	{"a border that is gone", onBorder(func(_ *mathrand.Rand, _ *subject, _ spot, _ string, _ []string) [][]byte {
		return [][]byte{{}}
	})},
	{"a border and something behind it", onBorder(func(r *mathrand.Rand, s *subject, p spot, _ string, _ []string) [][]byte {
		return [][]byte{s.line(p), pick(r, [][]byte{[]byte("x"), {0}, s.line(p), s.line(pick(r, s.spots("b"))), s.line(pick(r, s.spots("c")))})}
	})},
	{"a border that ends the log, altered", onBorder(func(r *mathrand.Rand, s *subject, p spot, _ string, _ []string) [][]byte {
		s.cut(p.file, p.end)
		if r.IntN(2) == 0 {
			delete(s.files, "checkpoint")
		}
		line := bytes.Clone(s.line(p))
		if r.IntN(4) > 0 {
			line[r.IntN(len(line)-1)] ^= 1
		}
		return [][]byte{line}
	})},
	{"a log that ends within a border", onBorder(func(r *mathrand.Rand, s *subject, p spot, _ string, _ []string) [][]byte {
		s.cut(p.file, p.end)
		return [][]byte{s.line(p)[:r.IntN(p.end-p.begin)]}
	})},
	{"the record of a key without its border's segment", func(_ *testing.T, r *mathrand.Rand, s *subject, _, _ *written) bool {
		for _, p := range s.spots("r") {
			if line := s.line(p); p.begin > 1000 && bytes.Contains(line, []byte(`"kind":"key"`)) {
				s.replace(p)
				s.resignBatches()
				return true
			}
		}
		return false
	}},
	{"the file checkpoint is a border", func(_ *testing.T, r *mathrand.Rand, s *subject, w, _ *written) bool {
		for _, signed := range checkpointsIn(s.files) {
			if bytes.Count(signed, []byte("— ")) == 2 {
				signed = bytes.Clone(signed)
				if r.IntN(2) == 0 {
					signed[len(signed)-1-r.IntN(90)] ^= 1
				}
				s.files["checkpoint"] = signed
				return true
			}
		}
		return false
	}},
	{"a header names another key of the walk", func(_ *testing.T, r *mathrand.Rand, s *subject, _, _ *written) bool {
		list := s.spots("h")
		from, to := s.line(pick(r, list)), pick(r, list)
		key := func(line []byte) []byte { return line[bytes.Index(line, []byte(`"vkey"`)):] }
		if bytes.Equal(key(from), key(s.line(to))) {
			return false
		}
		line := s.line(to)
		s.replace(to, line[:len(line)-len(key(line))], key(from))
		return true
	}},
}
