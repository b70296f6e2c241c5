// Package registry reads registry.yaml into an immutable Snapshot, and builds
// upstream requests from the actions that it declares.
//
// It promises that nothing in the file is dropped, guessed or read in a second
// way. A key that is unknown, given twice or told apart from another by case
// only, a second document, an alias or a merge key, a number, boolean or
// duration in an unusual form, and a name that leads nowhere are all errors,
// each with file, line, column and path, and all reported at once. Names stay
// the text that was written: a tenant called no or 0123 is just that.
//
// The file is YAML (and so also JSON) of at most MaxSize bytes. This is the
// only package that knows YAML.
package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// MaxSize is the largest file that is read.
const MaxSize = 1 << 20

// Load reads and checks the file at path. The error is Problems, or an
// *fs.PathError where the file could not be read. See Parse for what there is
// beside Problems.
func Load(path string) (*Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return load(path, f)
}

// LoadAgain is Load for a gateway that runs, and so must not come to a halt: what
// could keep a reader waiting, such as a pipe that nobody writes to, is an error.
func LoadAgain(path string) (*Snapshot, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return load(path, f)
}

func load(path string, f *os.File) (*Snapshot, error) {
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// HashFile returns the Hash that a Snapshot of the file at path would have,
// whether it is sound or not. It waits as little as LoadAgain, and there is no
// hash of what is longer than a registry may be.
func HashFile(path string) (string, error) {
	f, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return "", err
	}
	if len(data) > MaxSize {
		return "", &fs.PathError{Op: "hash", Path: path, Err: errTooLarge}
	}
	return hash(data), nil
}

var (
	errTooLarge = fmt.Errorf("the file is larger than %d bytes", MaxSize)
	errNoFile   = errors.New("not a regular file")
)

// openFile opens a regular file and nothing else, without waiting for whoever
// should write to it (open(2), O_NONBLOCK: it does nothing to a regular file).
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errNoFile}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Parse checks data as the contents of a file of that name. The error is
// Problems. It does not keep data.
//
// Beside Problems the Snapshot is what could be read, for a check of what the
// settings and the file say together, so that everything is told at once. It
// has no File and no Hash, keys and tenants in it lack what was not sound, and
// nothing may be served by it. It is nil where the file is not YAML.
func Parse(file string, data []byte) (*Snapshot, error) {
	r := &reader{file: file}
	root := r.document(data)
	if root == nil {
		return nil, r.problems
	}
	r.forbid(root, "")
	s := r.snapshot(root)
	if len(r.problems) > 0 {
		r.problems.Sort()
		return s, r.problems
	}
	s.File, s.Hash = file, hash(data)
	return s, nil
}

// document parses data as exactly one YAML document, and returns its root, or
// nil after recording why there is none.
func (r *reader) document(data []byte) *yaml.Node {
	whole := &yaml.Node{Line: 1, Column: 1}
	if len(data) > MaxSize {
		r.fail(whole, "", "%v", errTooLarge)
		return nil
	}
	if root := jsonDocument(data); root != nil {
		return root
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		r.fail(whole, "", "the file is empty%s", butForMark(data))
		return nil
	} else if err != nil {
		r.syntax(err, data)
		return nil
	}
	// The decoder stops after one document and says nothing of what follows,
	// be it a second one or garbage.
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		r.fail(&second, "", "a second document begins here; a registry is one document")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err, data)
		return nil
	}
	if len(doc.Content) != 1 {
		r.fail(whole, "", "the file is empty%s", butForMark(data))
		return nil
	}
	return doc.Content[0]
}

// butForMark tells of the byte order mark that a file begins with, which editors do
// not show.
func butForMark(data []byte) string {
	for mark, of := range map[string]string{"\xef\xbb\xbf": "UTF-8", "\xff\xfe": "UTF-16", "\xfe\xff": "UTF-16"} {
		if strings.HasPrefix(string(data), mark) {
			return " but for a byte order mark of " + of
		}
	}
	return ""
}

// unknownAnchor is the one finding of the parser that quotes the file, and the one
// that it knows no line of.
var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

var syntaxError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// syntax records what the YAML parser found. It knows the line, if that: of a
// flow mapping the one where it begins.
func (r *reader) syntax(err error, data []byte) {
	at, what := &yaml.Node{Line: 1, Column: 1}, err.Error()
	if m := syntaxError.FindStringSubmatch(what); m != nil {
		what = m[2]
		if line, err := strconv.Atoi(m[1]); err == nil {
			at.Line = line
			// The parser, unlike the scanner below it, counts lines from 0.
			if strings.HasPrefix(what, "did not find expected") {
				at.Line++
			}
		}
	}
	if m := unknownAnchor.FindStringSubmatch(what); m != nil {
		what = "an alias (*) leads nowhere: put the value in quotes if it begins with *"
		before, _, _ := strings.Cut(string(data), "*"+m[1])
		at.Line = 1 + strings.Count(before, "\n")
		at.Column = 1 + utf8.RuneCountInString(before[1+strings.LastIndexByte(before, '\n'):])
	}
	hint := ""
	if words := bareOptionals(data); len(words) > 0 {
		// They are to blame where quotes around them change what is found.
		var mended yaml.Node
		if now := yaml.Unmarshal(withQuotes(data, words), &mended); now == nil || now.Error() != err.Error() {
			at.Line, at.Column = words[0].line, words[0].column
			hint = "; quote what ends in a question mark"
			if word := words[0].word; shorthands[strings.TrimSuffix(word, "?")] != "" { // else it may be a secret
				hint = fmt.Sprintf("; quote it: %q", word)
			}
		}
	}
	if hint == "" && (strings.HasPrefix(what, "did not find expected ','") || strings.HasPrefix(what, "mapping values are not allowed")) {
		hint = "; a text with a comma, a bracket, a quote or a colon in it may want quotes around it"
	}
	if hint == "" && what == "found character that cannot start any token" {
		hint = "; a text that begins with @, ` or % wants quotes around it"
		if column := tabIn(data, at.Line); column > 0 {
			at.Column, hint = column, "; it is a tab: indent with spaces"
		}
	}
	r.fail(at, "", "not sound YAML: %s%s", strings.Join(strings.Fields(what), " "), hint)
}

// tabIn is the column of the tab that a line is indented with, or 0.
func tabIn(data []byte, line int) int {
	lines := strings.SplitN(string(data), "\n", line+1)
	if line > len(lines) {
		return 0
	}
	text := lines[line-1]
	indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
	return 1 + strings.IndexByte(indent, '\t')
}

// forbid refuses, anywhere in the tree, what lets one place of a file mean
// another (anchors, aliases, merge keys) and what changes the type of a value
// against its looks (tags).
func (r *reader) forbid(n *yaml.Node, path string) {
	switch {
	case n.Kind == yaml.AliasNode:
		r.fail(n, path, "aliases (*) are not taken: write the value out, in quotes if it begins with *")
	case n.Anchor != "":
		r.fail(n, path, "anchors (&) are not taken: put the value in quotes if it begins with &")
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n, path, "tags (!) are not taken: quote a text, leave a number bare")
	}
	for i, child := range n.Content {
		at := path
		switch {
		case n.Kind == yaml.SequenceNode:
			at = fmt.Sprintf("%s[%d]", path, i)
		case n.Kind == yaml.MappingNode && i%2 == 1:
			at = join(path, n.Content[i-1].Value)
		case n.Kind == yaml.MappingNode && isMerge(child):
			r.fail(child, path, "merge keys (<<) are not taken: write the members out")
		}
		r.forbid(child, at)
	}
}

func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && key.Style&quoted == 0
}
