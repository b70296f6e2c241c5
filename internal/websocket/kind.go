package websocket

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind is the text of the member "type" of a message that is a JSON object, as services
// name their events. It is told only where every reader would tell the same: ok is false
// of what is no JSON object by RFC 8259 to its last byte, of one that has the member
// twice, in other letter case ("Type") or with an escape in its name ("\u0074ype"), and
// where its value is no string. A message without the member has the kind "", for certain.
//
// Names are compared without their case, as some services' readers do, so two that differ
// by it are a doubt. What stands deeper in the object is held to the grammar and to
// nothing else.
func Kind(message []byte) (kind string, ok bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(message), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return "", false
	}
	told := false
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return "", false
		}
		plain := string(name) == `"type"`
		if !plain {
			text, err := jsontext.AppendUnquote(nil, name)
			if err != nil || strings.EqualFold(string(text), "type") {
				return "", false
			}
		}
		value, err := d.ReadValue()
		if err != nil {
			return "", false
		}
		if !plain {
			continue
		}
		text, err := jsontext.AppendUnquote(nil, value)
		if told || value.Kind() != '"' || err != nil {
			return "", false
		}
		kind, told = string(text), true
	}
	if t, err := d.ReadToken(); err != nil || t.Kind() != '}' {
		return "", false
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return "", false
	}
	return kind, true
}
