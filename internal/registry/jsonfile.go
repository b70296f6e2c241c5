package registry

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"gopkg.in/yaml.v3"
)

// jsonDocument reads data as JSON (RFC 8259) into the tree that the same text
// has as YAML, or returns nil where it is none.
//
// JSON is nearly YAML, and the parser of YAML would do but for two things that
// programs write: it takes neither \/ nor a letter in two \u escapes. The tree
// is held to the same rules; names that stand twice are for them to find.
func jsonDocument(data []byte) *yaml.Node {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return nil
	}
	t := &jsonTree{data: data, line: 1, decoder: jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))}
	root, err := t.value()
	if err != nil {
		return nil
	}
	if _, err := t.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil
	}
	return root
}

// jsonTree reads values one after the other, and keeps count of lines.
type jsonTree struct {
	data    []byte
	decoder *jsontext.Decoder

	seen, line, lineStart int // up to where it was read and counted; the line there, and where that begins
}

func (t *jsonTree) value() (*yaml.Node, error) {
	token, err := t.decoder.ReadToken()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	t.place(n)
	switch token.Kind() {
	case '{':
		n.Kind, n.Style = yaml.MappingNode, yaml.FlowStyle
		return n, t.members(n, '}')
	case '[':
		n.Kind, n.Style = yaml.SequenceNode, yaml.FlowStyle
		return n, t.members(n, ']')
	case '"':
		n.Style = yaml.DoubleQuotedStyle
	}
	n.Value = token.String()
	return n, nil
}

// members reads what an object or array holds, and its end.
func (t *jsonTree) members(n *yaml.Node, end jsontext.Kind) error {
	for t.decoder.PeekKind() != end {
		child, err := t.value()
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
	_, err := t.decoder.ReadToken()
	return err
}

// place gives a node the position of the token that has just been read. As for
// YAML, a column counts letters, from 1.
func (t *jsonTree) place(n *yaml.Node) {
	for ; bytes.IndexByte([]byte(" \t\r\n,:]}"), t.data[t.seen]) >= 0; t.seen++ {
		if t.data[t.seen] == '\n' {
			t.line, t.lineStart = t.line+1, t.seen+1
		}
	}
	n.Line, n.Column = t.line, 1+utf8.RuneCount(t.data[t.lineStart:t.seen])
	t.seen = int(t.decoder.InputOffset())
}
